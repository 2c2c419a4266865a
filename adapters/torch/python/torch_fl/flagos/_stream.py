"""Streams and events: torch's generic classes, on the flagos device."""

from __future__ import annotations

from typing import Literal

import torch

from torch_fl.flagos._lifecycle import _lazy_init
from torch_fl.flagos._utils import Device, _get_device_index
from torch_fl.native import native

# torch's generic classes, because flagos is the accelerator of the process: without a device they mean flagos, and
# torch's own functions return them.
Stream = torch.Stream
Event = torch.Event

_DEVICE_TYPE = 20  # c10::DeviceType::PrivateUse1
_DEFAULT_STREAM_ID = 0


def current_stream(device: Device = None) -> torch.Stream:
    """The stream the calling thread submits to on `device`, the current one by default."""
    _lazy_init()
    if device is None:
        return torch.accelerator.current_stream()
    return torch.accelerator.current_stream(_get_device_index(device, optional=True))


def default_stream(device: Device = None) -> torch.Stream:
    """The default stream of `device`."""
    _lazy_init()
    return torch.Stream(
        stream_id=_DEFAULT_STREAM_ID,
        device_index=_get_device_index(device, optional=True),
        device_type=_DEVICE_TYPE,
    )


def ExternalStream(stream_ptr: int, device: Device = None) -> torch.Stream:
    """A stream that another library made, as a flagos stream. `stream_ptr` is its handle, such as a `cudaStream_t`.

    It stays the other library's, which has to keep it alive. Raises UnsupportedError where streams are the core's.
    """
    _lazy_init()
    index = _get_device_index(device, optional=True)
    stream_id = native().external_stream(stream_ptr, index)
    return torch.Stream(stream_id=stream_id, device_index=index, device_type=_DEVICE_TYPE)


def set_stream(stream: torch.Stream | None) -> None:
    """Submit to `stream` from now on, on its device. None changes nothing."""
    if stream is not None:
        _lazy_init()
        torch._C._accelerator_setStream(stream)


def synchronize(device: Device = None) -> None:
    """Wait until every stream of `device`, the current one by default, is idle.

    Raises when work submitted earlier failed; the failure is reported once.
    """
    _lazy_init()
    torch._C._accelerator_synchronizeDevice(_get_device_index(device, optional=True))


class StreamContext:
    """Context manager: `stream` and its device are current inside. None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream
        self._previous_device = -1
        self._previous_stream: torch.Stream | None = None

    def __enter__(self) -> StreamContext:
        if self.stream is not None:
            self._previous_device = torch._C._accelerator_getDeviceIndex()
            self._previous_stream = current_stream(self.stream.device_index)
            set_stream(self.stream)
        return self

    def __exit__(self, *exc: object) -> Literal[False]:
        if self._previous_stream is not None:
            set_stream(self._previous_stream)  # also makes the stream's device current
            torch._C._accelerator_setDeviceIndex(self._previous_device)
            self._previous_stream = None
        return False


def stream(stream: torch.Stream | None) -> StreamContext | torch.Stream:
    """Context manager that submits to `stream` inside; see StreamContext."""
    if stream is not None and torch.compiler.is_dynamo_compiling():
        return stream  # a context of torch's own, which Dynamo traces
    return StreamContext(stream)
