"""Flagos tensors in other libraries, through DLPack and the CUDA array interface.

Under the cuda vendor a flagos tensor is CUDA memory, so it is offered as such and CuPy, Numba and
Triton take it as they take torch's CUDA tensors. Memory of the host vendor is an accelerator's to
them (kDLExtDev), which only torch accepts.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import torch
from torch.utils.dlpack import DLDeviceType

from torch_fl import _vendor

_DEVICE = "flagos"

_dlpack = torch.Tensor.__dlpack__
_dlpack_device = torch.Tensor.__dlpack_device__
_cuda_array_interface = torch.Tensor.__cuda_array_interface__


def _as_cuda(tensor: torch.Tensor) -> torch.Tensor:
    """The same memory on `cuda`. The gradient requirement is kept, for torch to refuse it."""
    shared = tensor.detach().to(torch.device("cuda", tensor.device.index))
    return shared.requires_grad_(tensor.requires_grad)


def _is_flagos_on_cuda(tensor: torch.Tensor) -> bool:
    return tensor.device.type == _DEVICE and _vendor.on_cuda()


def __dlpack__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return _dlpack(_as_cuda(self) if _is_flagos_on_cuda(self) else self, *args, **kwargs)


def __dlpack_device__(self: torch.Tensor) -> tuple[IntEnum, int]:
    # torch 2.11 compares with the literal "privateuse1", which is not the name of any renamed device, so every DLPack
    # consumer would raise "Unknown device type".
    if self.device.type != _DEVICE:
        return _dlpack_device(self)
    if _vendor.on_cuda():
        return DLDeviceType.kDLCUDA, self.device.index
    return DLDeviceType.kDLExtDev, self.device.index


def _cuda_array(self: torch.Tensor) -> Any:
    shared = _as_cuda(self) if _is_flagos_on_cuda(self) else self
    return _cuda_array_interface.__get__(shared)


def install() -> None:
    """Replace the methods of torch.Tensor. Tensors of other devices still get torch's own."""
    __dlpack__.__doc__ = _dlpack.__doc__
    __dlpack_device__.__doc__ = _dlpack_device.__doc__
    for name, answer in (
        ("__dlpack__", __dlpack__),
        ("__dlpack_device__", __dlpack_device__),
        ("__cuda_array_interface__", property(_cuda_array, doc=_cuda_array_interface.__doc__)),
    ):
        setattr(torch.Tensor, name, answer)
