"""Launches of vLLM's Triton kernels as calls of operators of the plan.

vLLM launches a kernel by ``kernel[grid](*args, **settings)``. In the place of the kernel stands a `Launches`, whose
operator gets the grid and the arguments; the implementation ``triton`` launches the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

_originals: dict[tuple[str, str], Any] = {}


class Launches:
    """Stands in the place of a Triton kernel."""

    def __init__(self, operator: Callable[..., Any]) -> None:
        self.operator = operator

    def __getitem__(self, grid: Any) -> Callable[..., Any]:
        return partial(self.operator, grid)


def replace(module: ModuleType, name: str, operator: Callable[..., Any]) -> None:
    """Puts ``operator`` in the place of the kernel ``name`` of a module of vLLM. Idempotent."""
    kernel = getattr(module, name)
    if not isinstance(kernel, Launches):
        _originals[module.__name__, name] = kernel
        setattr(module, name, Launches(operator))


def original(module: str, name: str) -> Any:
    """The kernel that `replace` took out of ``vllm.<module>``."""
    return _originals[f"vllm.{module}", name]


def launch(module: str, name: str) -> Callable[..., Any]:
    """The implementation ``triton`` of such an operator."""

    def launched(grid: Any, *args: Any, **settings: Any) -> Any:
        return original(module, name)[grid](*args, **settings)

    return launched
