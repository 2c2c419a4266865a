"""Flagos tensors in other libraries, through DLPack.

Memory that torch knows by a name of its own is offered under that name, and other libraries take it as they take
torch's own tensors. All other memory is of the type that the vendor's description gives. torch writes kDLExtDev into
every capsule of such memory, and takes it back under that type alone, so the vendor's type is written over it for
other libraries.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
import torch.utils.dlpack
from torch.utils.dlpack import DLDeviceType

from torch_fl.native import native

_DEVICE = "flagos"

_dlpack = torch.Tensor.__dlpack__
_dlpack_device = torch.Tensor.__dlpack_device__
_from_dlpack = torch.utils.dlpack.from_dlpack
_to_dlpack = torch.utils.dlpack.to_dlpack

# Where `device_type` is in the structs of DLPack's C header: behind the pointer to the data, with which a DLTensor
# begins. In front of it DLManagedTensorVersioned has 32 bytes: the version, two pointers and the flags.
_DEVICE_TYPE_AT = {b"dltensor": 8, b"dltensor_versioned": 40}

_name_of = ctypes.pythonapi.PyCapsule_GetName
_name_of.restype, _name_of.argtypes = ctypes.c_char_p, [ctypes.py_object]
_content_of = ctypes.pythonapi.PyCapsule_GetPointer
_content_of.restype, _content_of.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def __dlpack__(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if self.device.type != _DEVICE:
        return _dlpack(self, *args, **kwargs)
    _lend(self)
    shared = native().exported(self)
    if shared.device.type != _DEVICE:
        return _dlpack(shared, *args, **kwargs)
    if kwargs.pop("stream", -1) != -1:
        # The taker names a stream of its own, which cannot be told to wait for this one.
        torch.accelerator.current_stream(self.device).synchronize()
    wanted = kwargs.get("dl_device")
    if wanted is not None and wanted[0] == native().dlpack_device_type:
        kwargs["dl_device"] = (DLDeviceType.kDLExtDev, wanted[1])
    return _with_the_vendors_type(_dlpack(shared, *args, **kwargs))


def _lend(tensor: torch.Tensor) -> None:
    """Has automatic graphs leave the memory alone, because others know its address from now on."""
    torch.ops.flagos.graphs_lend(tensor.untyped_storage())


def _with_the_vendors_type(capsule: Any) -> Any:
    name = _name_of(capsule)
    device_type = ctypes.c_int32.from_address(_content_of(capsule, name) + _DEVICE_TYPE_AT[name])
    if (
        device_type.value == DLDeviceType.kDLExtDev
    ):  # otherwise the taker asked for a copy elsewhere
        device_type.value = native().dlpack_device_type
    return capsule


def __dlpack_device__(self: torch.Tensor) -> tuple[Any, int]:
    # torch 2.11 compares with the literal "privateuse1", which is not the name of any renamed device, so every DLPack
    # consumer would raise "Unknown device type".
    if self.device.type != _DEVICE:
        return _dlpack_device(self)
    return _known(native().dlpack_device_type), self.device.index


def _known(device_type: int) -> int:
    """The type as torch's enumeration has it; DLPack's header has more."""
    return DLDeviceType(device_type) if device_type in list(DLDeviceType) else device_type


class _ForTorch:
    """A tensor of the device, under the type by which torch takes it back."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self._tensor = tensor

    def __dlpack__(self, **kwargs: Any) -> Any:
        _lend(self._tensor)
        return _dlpack(self._tensor, **kwargs)

    def __dlpack_device__(self) -> tuple[Any, int]:
        return DLDeviceType.kDLExtDev, self._tensor.device.index


@functools.wraps(_from_dlpack)
def _taken_back(ext_tensor: Any, **kwargs: Any) -> torch.Tensor:
    if isinstance(ext_tensor, torch.Tensor) and ext_tensor.device.type == _DEVICE:
        ext_tensor = _ForTorch(ext_tensor)
    return _from_dlpack(ext_tensor, **kwargs)


@functools.wraps(_to_dlpack, assigned=("__name__", "__qualname__", "__doc__"))
def _as_capsule(tensor: torch.Tensor) -> Any:
    if isinstance(tensor, torch.Tensor) and tensor.device.type == _DEVICE:
        _lend(tensor)
    return _to_dlpack(tensor)


def install() -> None:
    """Replace the methods of torch.Tensor, and torch's functions. Tensors of other devices still get torch's own."""
    __dlpack__.__doc__ = _dlpack.__doc__
    __dlpack_device__.__doc__ = _dlpack_device.__doc__
    for name, answer in (("__dlpack__", __dlpack__), ("__dlpack_device__", __dlpack_device__)):
        setattr(torch.Tensor, name, answer)
    for module in (torch, torch.utils.dlpack):
        setattr(module, "to_dlpack", _as_capsule)  # noqa: B010
    of_torch = native().device_type is not None
    if not of_torch and native().dlpack_device_type != DLDeviceType.kDLExtDev:
        for module in (torch, torch.utils.dlpack):
            setattr(module, "from_dlpack", _taken_back)  # noqa: B010
