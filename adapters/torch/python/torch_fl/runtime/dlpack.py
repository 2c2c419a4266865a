"""Flagos tensors in other libraries, through DLPack.

Memory that torch knows by a name of its own is offered under that name, and other libraries take it as they take
torch's own tensors. All other memory is of the type that the vendor's description gives.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from torch_fl.native import native

_DEVICE = "flagos"

_dlpack = torch.Tensor.__dlpack__
_dlpack_device = torch.Tensor.__dlpack_device__


def __dlpack__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    shared = native().exported(self) if self.device.type == _DEVICE else self
    return _dlpack(shared, *args, **kwargs)


def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
    # torch 2.11 compares with the literal "privateuse1", which is not the name of any renamed device, so every DLPack
    # consumer would raise "Unknown device type".
    if self.device.type != _DEVICE:
        return _dlpack_device(self)
    return DLDeviceType(native().dlpack_device_type), self.device.index


def install() -> None:
    """Replace the methods of torch.Tensor. Tensors of other devices still get torch's own."""
    __dlpack__.__doc__ = _dlpack.__doc__
    __dlpack_device__.__doc__ = _dlpack_device.__doc__
    for name, answer in (("__dlpack__", __dlpack__), ("__dlpack_device__", __dlpack_device__)):
        setattr(torch.Tensor, name, answer)
