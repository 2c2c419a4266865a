"""Keeps parameters the same objects when a module moves to flagos or back.

`module.cuda()` changes each parameter in place, so tied weights stay tied and an optimizer built before
the move stays valid. For devices outside its own list torch makes new parameters instead, one for each
place a tied parameter appears in: training then goes wrong silently. Torch's own remedy is
`torch.__future__.set_swap_module_params_on_conversion(True)`; it is switched on here for exactly the
conversions that cross between flagos and another device.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any

import torch

_state = threading.local()


def install(device: str) -> None:
    """Wrap `torch.nn.Module._apply`, through which every conversion goes. Idempotent."""
    convert = torch.nn.Module._apply
    if getattr(convert, "_keeps_identity_on", None) == device:
        return

    @functools.wraps(convert)
    def _apply(
        self: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], *args: Any, **kwargs: Any
    ) -> torch.nn.Module:
        if getattr(_state, "converting", False):  # a child of the module being converted
            return convert(self, fn, *args, **kwargs)
        _state.converting = True
        try:
            if not _crosses(self, fn, device) or _swaps():
                return convert(self, fn, *args, **kwargs)
            torch.__future__.set_swap_module_params_on_conversion(True)
            try:
                return convert(self, fn, *args, **kwargs)
            finally:
                torch.__future__.set_swap_module_params_on_conversion(False)
        finally:
            _state.converting = False

    _apply._keeps_identity_on = device  # type: ignore[attr-defined]
    torch.nn.Module._apply = _apply  # type: ignore[method-assign]


def _swaps() -> bool:
    return torch.__future__.get_swap_module_params_on_conversion()


def _crosses(
    module: torch.nn.Module, fn: Callable[[torch.Tensor], torch.Tensor], device: str
) -> bool:
    """True when `fn` would take the module's parameters to flagos or away from it.

    Asked with an empty tensor on a parameter's device, which costs nothing to convert.
    """
    parameter = next(module.parameters(), None)
    if parameter is None or parameter.is_meta:
        return False
    with torch.no_grad():
        probe = torch.empty(0, dtype=parameter.dtype, device=parameter.device)
        converted = fn(probe)
    if not isinstance(converted, torch.Tensor):
        return False
    return (converted.device.type == device) != (parameter.device.type == device)
