"""The device and the stream that a launch goes to."""

from __future__ import annotations

import ctypes
from functools import cache
from types import ModuleType

import torch

from flagos import _core
from torch_fl.native import native

TYPE = "flagos"


def interface() -> ModuleType:
    """The device interface as triton-ascend expects it: synchronize, Event, current_device, ..."""
    module: ModuleType = getattr(torch, TYPE)
    return module


def current() -> int:
    """The index of the current device. Its context is the thread's afterwards."""
    index = int(interface().current_device())
    enter(index)
    return index


def set_current(index: int) -> None:
    """Makes a device the thread's current one."""
    interface().set_device(index)
    enter(index)


def stream(index: int | None = None) -> int:
    """The handle (`aclrtStream`) of this thread's current stream of a device, by default of the current one.

    The device's context is the thread's afterwards: the launch that follows needs it, and fails with the code 107003
    in the context of another device.
    """
    index = int(interface().current_device()) if index is None else index
    handle = native().stream_handle(index)
    enter(index)
    return handle


def enter(index: int) -> None:
    """Makes the default context of a device the thread's. Raises RuntimeError where the runtime refuses."""
    _core.init()  # at once where it is initialised
    library = _runtime()
    now = ctypes.c_int32(-1)
    if library.aclrtGetDevice(ctypes.byref(now)) == 0 and now.value == index:
        return
    code = library.aclrtSetDevice(index)
    if code != 0:
        raise RuntimeError(
            f"aclrtSetDevice({index}) returned {code}: a Triton kernel cannot be launched on {TYPE}:{index}; "
            "`flagos devices` lists the devices of this process"
        )


@cache
def _runtime() -> ctypes.CDLL:
    # The core has opened it.
    return ctypes.CDLL("libascendcl.so")
