"""Number, current one and properties of the devices."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal

import torch

from torch_fl.flagos._lifecycle import _lazy_init
from torch_fl.flagos._utils import Device, _get_device_index, constant_in_graphs
from torch_fl.native import DeviceProperties, native


@constant_in_graphs
def is_available() -> bool:
    """True when at least one device can be used. Initialises nothing and never raises."""
    return device_count() > 0


@constant_in_graphs
def device_count() -> int:
    """Number of devices; 0 when there is none. Initialises nothing and never raises."""
    return native().device_count()


def current_device() -> int:
    """Index of the calling thread's current device."""
    _lazy_init()
    return torch.accelerator.current_device_index()


def set_device(device: Device) -> None:
    """Make `device` current for the calling thread. A negative index changes nothing."""
    index = _get_device_index(device, optional=True)
    if index >= 0:
        _lazy_init()
        torch._C._accelerator_setDeviceIndex(index)


def exchange_device(device: int) -> int:
    """Make `device` current and return the index that was; a negative index changes nothing."""
    if device < 0:
        return -1
    _lazy_init()
    return torch._C._accelerator_exchangeDevice(device)


def maybe_exchange_device(device: int) -> int:
    """Like `exchange_device`, but does not wake up a device that was never used."""
    if device < 0:
        return -1
    previous = torch._C._accelerator_getDeviceIndex()
    torch._C._accelerator_maybeExchangeDevice(device)  # returns the new index, not the previous one
    return previous


class device:
    """Context manager: `device` is current inside, and the previous one is again outside.

    Takes an index, a `torch.device`, a string, or None, which changes nothing.
    """

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else _get_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> device:
        if torch.compiler.is_dynamo_compiling() and self.idx == current_device():
            return self  # Dynamo cannot trace a change, and this is none
        self.prev_idx = exchange_device(self.idx)
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        maybe_exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager: the device of `obj`, a tensor or a storage, is current inside.

    Changes nothing for an object that is not on a flagos device.
    """

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        where = obj.device
        super().__init__(where.index if where.type == "flagos" else None)


@cache
def _properties() -> tuple[DeviceProperties, ...]:
    return native().properties()


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Properties of `device`, of the current one by default."""
    return _properties_of(_get_device_index(device, optional=True))


@constant_in_graphs
def _properties_of(index: int) -> DeviceProperties:
    known = _properties()
    if not 0 <= index < len(known):
        raise ValueError(
            f"no device flagos:{index}; this machine has {len(known)} flagos device(s)"
        )
    return known[index]


def get_device_name(device: Device = None) -> str:
    """Name of `device` as its vendor gives it."""
    return get_device_properties(device).name


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Generation of `device`, major and minor, as its vendor counts them."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Architectures that torch's own kernels for the device were compiled for; none where it has no such kernels."""
    return native().arch_list()


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """True when `device` can address the memory of `peer_device` directly. Raises ValueError for a missing device."""
    here = _get_device_index(device, optional=True)
    return native().can_access_peer(here, _get_device_index(peer_device, optional=True))


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True when the current device computes in bfloat16.

    With `including_emulation` unset, only when it does so natively.
    """
    capability: dict[str, Any] = torch.accelerator.get_device_capability(current_device())
    return torch.bfloat16 in capability["supported_dtypes"]
