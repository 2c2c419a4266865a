"""safetensors reads straight onto the device: `load_file(f, device="flagos:0")`, `safe_open(...)`.

Its parser knows the names of torch's built-in devices only, but hands a bare index on to torch, which
takes it for the accelerator's: flagos, once registered.
"""

from __future__ import annotations

import sys
from typing import Any

import safetensors

from torch_fl import flagos

_DEVICE = "flagos"

_native = safetensors.safe_open


def _known(device: Any) -> Any:
    """`device` as safetensors understands it; unchanged if it does not name flagos."""
    name, _, index = str(device).partition(":")
    if name != _DEVICE:
        return device
    return int(index) if index else flagos.current_device()


class _Opened(type):
    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, _native)


class safe_open(metaclass=_Opened):
    # A class, because programs use the name in annotations. The native class allows no subclass, so calling this one
    # returns an instance of the native one.
    def __new__(cls, filename: Any, framework: Any, device: Any = "cpu", **options: Any) -> Any:
        return _native(filename, framework, _known(device), **options)


safe_open.__doc__ = _native.__doc__


def register() -> None:
    """Replace the class where safetensors looks for it."""
    for place in ("safetensors", "safetensors.torch"):
        module = sys.modules.get(place)
        if getattr(module, "safe_open", None) is _native:
            setattr(module, "safe_open", safe_open)  # noqa: B010
