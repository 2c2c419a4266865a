"""Declaration of an operator's implementations, with the reasons why some cannot be used here."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from flagos import Operator, _core
from lightx2v_fl import rooms

_SOURCE = "FLAGGEMS_SOURCE_DIR"
_POLICY = "FLAGOS_FLAGGEMS"

Implementation = Callable[..., Any]


def declare(
    name: str,
    *,
    native: Implementation,
    reference: Implementation,
    flaggems: Implementation | None,
    triton: Implementation | None = None,
    triton_room: str = "",
    native_unavailable: str | None = None,
    flaggems_unavailable: str | None = None,
) -> Operator:
    """The operator ``lightx2v::<name>``.

    ``native`` calls torch's own kernels, ``triton`` (optional) Triton kernels of this package, in the module
    ``triton_room`` of the rooms of the device types they are for, ``reference`` follows the formula, ``flaggems``
    calls FlagGems (``None`` if it has no such kernel). An implementation with an ``*_unavailable`` reason is never
    chosen.
    """
    operator = Operator(f"lightx2v::{name}")
    described = _core.vendor_info()
    if flaggems is not None:
        missing = flaggems_unavailable or flaggems_missing(described["flaggems_vendor"])
        operator.offer(
            flaggems,
            impl_id=f"flaggems.{name}",
            kind="flagos",
            backend="flaggems",
            unavailable=missing,
            on_request=None if missing else flaggems_on_request(),
        )
    offer_native = partial(
        operator.offer,
        kind="vendor",
        vendor=described["name"],
        # The name that the plan of torch's own operators has for them.
        backend=described["name"] if described["serving"] == "library" else of_the_vendor(),
    )
    if triton is not None:
        offer_native(
            triton,
            impl_id=f"triton.{name}",
            priority=1,
            unavailable=triton_missing(of_the_vendor(), triton_room),
        )
    offer_native(native, impl_id=f"torch.{name}", unavailable=native_unavailable)
    operator.offer(reference, impl_id=f"reference.{name}", kind="reference", backend="reference")
    return operator


def flaggems_missing(vendor: str | None) -> str | None:
    """Why FlagGems cannot serve its `vendor` in this process; None when it can. Does not import it."""
    if not os.environ.get(_SOURCE) and find_spec("flag_gems") is None:
        return "FlagGems is not installed (no module flag_gems)"
    if vendor is None:
        return f"FlagGems has no kernels for vendor {_core.vendor()}, which serves flagos here"
    return None


def flaggems_on_request() -> str | None:
    """Why FlagGems' kernels need a route of their own; None when FLAGOS_FLAGGEMS=all allows them."""
    if os.environ.get(_POLICY) == "all":
        return None
    return f"not verified in LightX2V on this chip: route it here, or set {_POLICY}=all"


def triton_missing(device_type: str, room: str) -> str | None:
    """Why the Triton kernels of the module `room` cannot serve; None when they can. Does not import Triton."""
    if not rooms.has(device_type, room):
        kinds = ", ".join(rooms.names(room))
        return (
            f"these Triton kernels are for {kinds}, and vendor {_core.vendor()} serves flagos here"
        )
    if find_spec("triton") is None:
        return "Triton is not installed (no module triton)"
    # Triton's own search for a compiler. Without this check every call would be declined as a fallback.
    if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
        return "Triton finds no C compiler, which it needs once: install gcc or clang, or set CC"
    return None


@cache
def flaggems_function(module: str, function: str) -> Implementation:
    """A function of FlagGems that takes tensors of any device. Triton gets tensors of the chip's own device.

    Raises UnsupportedError when the installed FlagGems lacks the function. ``module`` is the full path below
    ``flag_gems``, because ``flag_gems.ops`` rebinds some of its submodules to functions.
    """
    source = os.environ.get(_SOURCE)
    if source and str(Path(source).parent) not in sys.path:
        sys.path.insert(0, str(Path(source).parent))
    try:
        found = getattr(import_module(f"flag_gems.{module}"), function, None)
    except ImportError as error:
        raise _core.UnsupportedError(f"flag_gems.{module} cannot be imported: {error}") from error
    if found is None:
        raise _core.UnsupportedError(f"this FlagGems has no flag_gems.{module}.{function}")
    return _on_native_tensors(found)


def native_type(x: torch.Tensor) -> str:
    """The type of the device that computes on `x`: for a flagos tensor, the chip's own."""
    return of_the_vendor() if x.device.type == "flagos" else x.device.type


@cache
def of_the_vendor() -> str:
    """The device type of torch whose kernels compute on flagos tensors.

    It is the CPU's on a vendor's library too, which has kernels of single operators of torch at most.
    """
    return _core.vendor_info()["torch_device_type"] or "cpu"


def decline(reason: str) -> Exception:
    """The exception by which an implementation declines a call. Another implementation serves it."""
    return _core.UnsupportedError(reason)


def _on_native_tensors(kernel: Implementation) -> Implementation:
    """`kernel` over tensors of the chip's own device, which share the memory of flagos tensors."""

    def run(*args: Any, **kwargs: Any) -> Any:
        device = next((a.device for a in _tensors((args, kwargs))), None)
        device_type = _core.vendor_info()["torch_device_type"]
        if device is None or device.type != "flagos" or device_type is None:
            return kernel(*args, **kwargs)
        native = torch.device(device_type, device.index)
        result = kernel(*_moved(args, native), **_moved(kwargs, native))
        return _moved(result, device)

    return run


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    parts = value.values() if isinstance(value, dict) else value
    return [t for part in parts for t in _tensors(part)] if isinstance(value, (tuple, dict)) else []


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, torch.Tensor):
        return value.to(device)
    if isinstance(value, tuple):
        return tuple(_moved(part, device) for part in value)
    if isinstance(value, dict):
        return {name: _moved(part, device) for name, part in value.items()}
    return value
