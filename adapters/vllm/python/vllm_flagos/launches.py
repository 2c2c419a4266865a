"""Launches of vLLM's Triton kernels as calls of operators of the plan.

vLLM launches a kernel by ``kernel[grid](...)``. In the place of the kernel stands a `Launches`, whose operator gets the
grid, the arguments in the kernel's order and its settings (the names in capitals) by name. The implementation
``triton`` launches the kernel itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from flagos import Operator

_originals: dict[str, Any] = {}  # by the name of the operator in its place


class Launches:
    """Stands in the place of a Triton kernel."""

    def __init__(self, kernel: Any, operator: Callable[..., Any]) -> None:
        self.operator = operator
        names = getattr(kernel, "arg_names", None)  # without Triton a kernel is a plain function
        self.arg_names = tuple(inspect.signature(kernel).parameters if names is None else names)
        self._arguments = tuple(name for name in self.arg_names if not name.isupper())

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        def launch(*args: Any, **given: Any) -> Any:
            given |= zip(self.arg_names, args, strict=False)
            arguments = [given.pop(name) for name in self._arguments if name in given]
            return self.operator(grid, *arguments, **given)

        return launch


def replace(holder: Any, name: str, operator: Operator) -> None:
    """Puts ``operator`` in the place of the kernel ``name`` of a module or an object of vLLM. Idempotent."""
    kernel = getattr(holder, name)
    if not isinstance(kernel, Launches):
        _originals[operator.name] = kernel
        setattr(holder, name, Launches(kernel, operator))


def launch(name: str) -> Callable[..., Any]:
    """The implementation ``triton`` of the operator ``vllm::<name>``: launches the kernel that `replace` took out."""

    def launched(grid: Any, *args: Any, **settings: Any) -> Any:
        return _originals[f"vllm::{name}"][grid](*args, **settings)

    return launched
