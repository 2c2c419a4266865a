"""FlagGems' overloads in the registry, each with what is known of it on this chip."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from flagos import _core, followers
from torch_fl import _vendor
from torch_fl.flaggems import interpreted, package, tables
from torch_fl.flaggems.parts import PARTS

BACKEND = "flaggems"

_registered: dict[str, str] = {}
_missing = "no overloads were registered yet"

# These move data between devices, types and layouts, which is the device's own business.
_NOT_ROUTED = frozenset(
    [
        "_to_copy",
        "copy",
        "copy_",
        "contiguous",
        "resolve_conj",
        "resolve_neg",
        "to_copy",
        "to.dtype",
        "_assert_async",
    ]
)


class Function:
    """A function of FlagGems, found when it is first called."""

    def __init__(self, overload: str) -> None:
        self._overload = overload
        self._function: Callable[..., Any] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._function is None:
            self._function = package.function(self._overload)
        return self._function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<FlagGems' {self._overload}>"


def registered() -> dict[str, str]:
    """The overloads that are candidates, with the names of FlagGems' functions."""
    return dict(_registered)


def missing() -> str:
    """Why there is no candidate."""
    return _missing


def usable(overload: str) -> bool:
    """Whether a route may name it."""
    return _unusable(overload) is None


def failed(overload: str) -> bool:
    """Whether it is known to be wrong on this chip."""
    known = tables.verdicts().get(overload)
    return known is not None and known["verdict"] == "FAILED"


def family(name: str) -> str:
    """What `add.Tensor`, `add_.Tensor` and `add.out` have in common; `zeros` belongs to `zero_`."""
    return name.partition(".")[0].strip("_").removesuffix("s")


def register() -> None:
    """Tell the core of every overload. Costs a few milliseconds where FlagGems is installed."""
    global _missing
    found = package.folder()
    if found is None:
        _missing = "it is not installed (see `flagos doctor`)"
        return
    try:
        functions = package.overloads(found)
    except (OSError, ValueError, SyntaxError) as error:
        # Without it everything else works; `flagos doctor` and `enable_flaggems` tell the reason.
        _missing = str(error)
        return
    known = torch._C._dispatch_has_kernel_for_dispatch_key
    served: dict[str, Callable[..., Any]] = {name: Function(name) for name in functions}
    for part, (whole, function) in PARTS.items():
        if whole in functions and part not in functions:
            functions[part], served[part] = function.__name__, function
    for overload, name in functions.items():
        op = f"aten::{overload}"
        try:
            known(op, "CPU")
        except RuntimeError:  # of another version of torch
            continue
        function = served[overload]
        unusable = _unusable(overload)
        _core.register_impl(
            op,
            f"{BACKEND}.{name}",
            "flagos",
            function,
            backend=BACKEND,
            unavailable_reason=unusable,
            on_request=None if unusable else tables.not_by_default(overload),
        )
        _registered[overload] = name
        if unusable is None:
            followers.offered(
                followers.Offer(op, f"{BACKEND}.{name}", function, BACKEND, native=True)
            )
    followers.published()


@cache
def why_unusable() -> str | None:
    """Why none of FlagGems' kernels can run in this process."""
    if importlib.util.find_spec("triton") is None:
        return "FlagGems needs Triton: pip install triton"
    if not _vendor.on_cuda() and not interpreted.wanted():
        return "FlagGems has kernels for GPUs, and none serves flagos here (TRITON_INTERPRET=1 interprets them)"
    return None


def _unusable(overload: str) -> str | None:
    return why_unusable() or _never_routed(overload)


def _never_routed(overload: str) -> str | None:
    if overload in _NOT_ROUTED:
        return "moving data between devices and layouts stays with the device"
    op = f"aten::{overload}"
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    # Those with a formula of their own (silu_backward) are composed for other devices alone.
    if has_kernel(op, "CompositeImplicitAutograd") and not has_kernel(op, "Autograd"):
        return (
            "torch derives its gradient from its parts, which one kernel for all of it would hide"
        )
    return None
