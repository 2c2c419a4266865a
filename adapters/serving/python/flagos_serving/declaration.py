"""Declaration of an engine's operators, with the reasons why an implementation cannot be used here."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from flagos import Operator, _core

Implementation = Callable[..., Any]


class Framework:
    """A serving engine, by its names.

    ``name`` is the one of messages, ``module`` that of Python and of its operators in the plan, and ``package`` the
    adapter's, by which ``torch.ops`` knows what is declared to compilers.
    """

    def __init__(self, name: str, module: str, package: str) -> None:
        self.name, self.module, self.package = name, module, package
        self.distribution = package.replace("_", "-")

    def declare(
        self,
        name: str,
        *,
        reference: Implementation,
        triton: Implementation | None = None,
        **kernels: tuple[Implementation, str | None],
    ) -> Operator:
        """The operator ``<module>::<name>``.

        ``reference`` follows the formula in torch's operators and runs on every device. ``triton`` launches the
        engine's own Triton kernels. ``kernels`` are others by the name of their backend, each with the reason why it
        cannot be used here (None if it can); they are preferred to Triton's.
        """
        operator = Operator(f"{self.module}::{name}")
        vendor = _core.vendor_info()["name"]
        for backend, (kernel, missing) in kernels.items():
            operator.offer(
                kernel,
                impl_id=f"{backend}.{name}",
                kind="vendor",
                vendor=vendor,
                backend=backend,
                priority=1,
                unavailable=missing,
            )
        if triton is not None:
            operator.offer(
                triton,
                impl_id=f"triton.{name}",
                kind="vendor",
                vendor=vendor,
                backend="triton",
                unavailable=self.triton_missing,
            )
        operator.offer(
            reference, impl_id=f"reference.{name}", kind="reference", backend="reference"
        )
        return operator

    @cached_property
    def _for_compilers(self) -> torch.library.Library:
        return torch.library.Library(self.package, "FRAGMENT")

    def declare_to_compilers(
        self, operator: Operator, schema: str, shape: Implementation | None = None
    ) -> None:
        """Registers ``torch.ops.<package>.<name>``: torch.compile cannot look into an operator of the plan.

        ``schema`` begins with the name. ``shape`` makes an empty result for operators that return one.
        """
        name = schema.partition("(")[0]
        self._for_compilers.define(schema)
        self._for_compilers.impl(name, lambda *args: operator(*args), "PrivateUse1")
        if shape is not None:
            torch.library.register_fake(f"{self.package}::{name}", shape)

    @cached_property
    def triton_missing(self) -> str | None:
        """Why the engine's Triton kernels cannot serve in this process; None when they can. Imports neither."""
        if find_spec(self.module) is None:
            return f"{self.name} is not installed (no module {self.module})"
        if find_spec("triton") is None:
            return "Triton is not installed (no module triton)"
        if os.environ.get("TRITON_INTERPRET") == "1":
            return None
        if device_type() == "cpu":
            return f"Triton has no driver for vendor {_core.vendor()}, which serves flagos here"
        return None

    def function(self, module: str, name: str) -> Implementation:
        """A function of the engine, imported at its first call."""
        return deferred(f"{self.module}.{module}", name)


def deferred(module: str, name: str) -> Implementation:
    """A function of a module, imported at its first call."""

    @cache
    def found() -> Implementation:
        function: Implementation = getattr(import_module(module), name)
        return function

    return lambda *args, **kwargs: found()(*args, **kwargs)


@cache
def device_type() -> str:
    """The device type of torch whose kernels compute on flagos tensors: ``cuda``; ``cpu`` on the host vendor."""
    return _core.vendor_info()["torch_device_type"] or "cpu"


@cache
def capability() -> tuple[int, int] | None:
    """CUDA's compute capability of the first device; None on a device of another kind. Opens no device."""
    if device_type() != "cuda":
        return None
    first = _core.devices()[0]
    return first["major"], first["minor"]


def decline(reason: str) -> Exception:
    """The exception by which an implementation declines a call. Another implementation serves it."""
    return _core.UnsupportedError(reason)


def decline_others(what: str, given: Mapping[str, Any], ignored: tuple[str, ...] = ()) -> None:
    """Declines a call with arguments in ``given`` that ``what`` does not know and that ask for something."""
    requested = sorted(
        name
        for name, value in given.items()
        if name not in ignored and value is not None and value is not False
    )
    if requested:
        raise decline(f"{what} does not know {', '.join(requested)}")
