"""The device's runtime for Dynamo and Inductor."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo import device_interface as dynamo

from torch_fl import flagos
from torch_fl.native import native

_DEVICE = "flagos"


class FlagosInterface(dynamo.DeviceInterface):
    """`torch.flagos` as a `DeviceInterface` of Dynamo."""

    device = flagos.device
    Event = torch.Event
    Stream = torch.Stream

    current_device = staticmethod(flagos.current_device)
    set_device = staticmethod(flagos.set_device)
    device_count = staticmethod(flagos.device_count)
    exchange_device = staticmethod(flagos.exchange_device)
    maybe_exchange_device = staticmethod(flagos.maybe_exchange_device)
    is_available = staticmethod(flagos.is_available)
    stream = staticmethod(flagos.stream)
    current_stream = staticmethod(flagos.current_stream)
    set_stream = staticmethod(flagos.set_stream)
    synchronize = staticmethod(flagos.synchronize)
    memory_allocated = staticmethod(flagos.memory_allocated)
    is_bf16_supported = staticmethod(flagos.is_bf16_supported)

    class Worker:
        """The same for compile workers, which do not own a device."""

        @staticmethod
        def set_device(device: int) -> None:
            dynamo.caching_worker_current_devices[_DEVICE] = device

        @staticmethod
        def current_device() -> int:
            chosen = dynamo.caching_worker_current_devices.get(_DEVICE)
            return flagos.current_device() if chosen is None else chosen

        @staticmethod
        def get_device_properties(device: Any = None) -> flagos.DeviceProperties:
            if device is None:
                device = FlagosInterface.Worker.current_device()
            return flagos.get_device_properties(device)

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return flagos.current_stream(device_idx).stream_id

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        flagos.set_stream(
            torch.Stream(stream_id=stream_id, device_index=device_index, device_type=device_type)
        )

    @staticmethod
    def get_compute_capability(device: Any = None) -> str:
        major, minor = flagos.get_device_capability(device)
        return f"{major}.{minor}"

    @staticmethod
    def is_triton_capable(device: Any = None) -> bool:
        return native().compiled_by == "native device" and native().triton_backend is not None

    @staticmethod
    def raise_if_triton_unavailable(device: Any = None) -> None:
        if FlagosInterface.is_triton_capable(device):
            theirs = dynamo.get_interface_for_device(native().device_type or native().vendor)
            theirs.raise_if_triton_unavailable(device)
            return
        raise RuntimeError(
            f"Triton has no target for vendor {native().vendor!r} of flagos; torch.compile does without it"
        )


def register() -> None:
    """Put the interface into Dynamo's table, under the device's name and that of each device."""
    dynamo.register_interface_for_device(_DEVICE, FlagosInterface)
    for index in range(flagos.device_count()):
        dynamo.register_interface_for_device(f"{_DEVICE}:{index}", FlagosInterface)
