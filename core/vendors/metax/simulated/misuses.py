"""Programs that call the simulated runtime in a process of their own, with the lines that each is recorded as.

`program(*lines)` declares one. A correct program has no lines.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
H2D, D2H, D2D, DEFAULT = 1, 2, 3, 4


@dataclass(frozen=True)
class Case:
    """A program, and what is recorded of it."""

    call: Callable[[Runtime], None]
    recorded: tuple[str, ...]
    variables: dict[str, str]


CASES: dict[str, Case] = {}


def program(*recorded: str, **variables: str) -> Callable[[Callable[[Runtime], None]], None]:
    """Declares a program, with the variables SIMULATED_METAX_* that it runs under."""

    def declare(call: Callable[[Runtime], None]) -> None:
        CASES[call.__name__] = Case(call, recorded, variables)

    return declare


class Runtime:
    """The library's functions; a call that fails raises."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(path)

    def code(self, name: str, *arguments: Any) -> int:
        """The code of a call. Numbers are passed in whole registers, as those of C's narrower types may be."""
        wide = [
            ctypes.c_uint64(one & (1 << 64) - 1) if isinstance(one, int) else one
            for one in arguments
        ]
        return int(getattr(self.library, name)(*wide))

    def good(self, name: str, *arguments: Any) -> None:
        """A call that succeeds."""
        code = self.code(name, *arguments)
        assert code == 0, (name, code)

    def refused(self, code: int, name: str, *arguments: Any) -> None:
        """A call that is refused with this code."""
        found = self.code(name, *arguments)
        assert found == code, (name, found)

    def new(self, name: str, *arguments: Any) -> int:
        """What a call writes to its first argument."""
        found = ctypes.c_void_p()
        self.good(name, ctypes.byref(found), *arguments)
        assert found.value
        return found.value

    def stream(self) -> int:
        """A stream of the current device."""
        return self.new("mcStreamCreateWithFlags", 1)

    def event(self, flags: int = 0) -> int:
        """An event of the current device."""
        return self.new("mcEventCreateWithFlags", flags)

    def malloc(self, size: int = 4096) -> int:
        """Memory of the current device."""
        return self.new("mcMalloc", size)

    def pinned(self, size: int = 4096) -> int:
        """Page-locked memory."""
        return self.new("mcMallocHost", size, 0)


# Correct programs.


@program()
def copies(mc: Runtime) -> None:
    there, here, stream = mc.malloc(), mc.pinned(), mc.stream()
    ctypes.memset(here, 7, 4096)
    mc.good("mcMemcpyAsync", there, here, 4096, H2D, stream)
    mc.good("mcStreamSynchronize", stream)
    ctypes.memset(here, 0, 4096)
    mc.good("mcMemcpyAsync", here, there, 4096, D2H, stream)
    mc.good("mcStreamSynchronize", stream)
    assert ctypes.string_at(here, 4096) == b"\7" * 4096
    mc.good("mcFree", there)
    mc.good("mcFreeHost", here)
    mc.good("mcStreamDestroy", stream)


@program()
def a_failure_is_kept_until_it_is_read(mc: Runtime) -> None:
    found = ctypes.c_void_p()
    mc.refused(2, "mcMalloc", ctypes.byref(found), 1 << 40)
    mc.good("mcDeviceSynchronize")
    assert mc.code("mcPeekAtLastError") == 2
    assert mc.code("mcGetLastError") == 2
    assert mc.code("mcGetLastError") == 0


@program()
def a_graph_runs_at_its_launch_alone(mc: Runtime) -> None:
    there, here, stream = mc.malloc(), mc.pinned(), mc.stream()
    ctypes.memset(here, 1, 4096)
    mc.good("mcStreamBeginCapture", stream, 0)
    status = ctypes.c_int()
    mc.good("mcStreamIsCapturing", stream, ctypes.byref(status))
    assert status.value == 1
    mc.good("mcMemcpyAsync", there, here, 1, H2D, stream)
    mc.good("mcMemcpyAsync", here + 1, there, 1, D2H, stream)
    graph = ctypes.c_void_p()
    mc.good("mcStreamEndCapture", stream, ctypes.byref(graph))
    made = mc.new("mcGraphInstantiate", graph, None, None, 0)
    ctypes.memset(here, 9, 1)
    mc.good("mcStreamSynchronize", stream)
    assert ctypes.string_at(here, 2) == b"\t\1"
    mc.good("mcGraphLaunch", made, stream)
    mc.good("mcStreamSynchronize", stream)
    assert ctypes.string_at(here, 2) == b"\t\t"


@program()
def a_capture_of_three_streams_in_a_row(mc: Runtime) -> None:
    streams, events = [mc.stream() for _ in range(3)], [mc.event(2) for _ in range(3)]
    there, here = mc.malloc(), mc.pinned()
    ctypes.memset(here, 5, 1)
    mc.good("mcStreamBeginCapture", streams[0], 0)
    for index, (stream, event) in enumerate(zip(streams, events, strict=True)):
        if index == 1:
            mc.good("mcMemcpyAsync", there, here, 1, H2D, stream)
        elif index == 2:
            mc.good("mcMemcpyAsync", here + 1, there, 1, D2H, stream)
        mc.good("mcEventRecord", event, stream)
        mc.good("mcStreamWaitEvent", streams[(index + 1) % 3], event, 0)
    graph = ctypes.c_void_p()
    mc.good("mcStreamEndCapture", streams[0], ctypes.byref(graph))
    mc.good("mcGraphLaunch", mc.new("mcGraphInstantiate", graph, None, None, 0), streams[1])
    mc.good("mcGraphDestroy", graph)
    mc.good("mcStreamSynchronize", streams[1])
    assert ctypes.string_at(here, 2) == b"\5\5"


# Misuses.


@program("mcSetDevice: there is no device 2 (refused: 101)")
def a_device_that_is_not_there(mc: Runtime) -> None:
    mc.refused(101, "mcSetDevice", 2)


@program("mcDeviceGetAttribute: no output, or no attribute 75 here (refused: 1)")
def an_attribute_by_cudas_number(mc: Runtime) -> None:
    value = ctypes.c_int()
    mc.refused(1, "mcDeviceGetAttribute", ctypes.byref(value), 75, 0)


@program("mcMalloc: no output, or no bytes (refused: 1)")
def no_bytes(mc: Runtime) -> None:
    mc.refused(1, "mcMalloc", ctypes.byref(ctypes.c_void_p()), 0)


@program("mcFree: no such memory begins at this address (refused: 1)")
def freed_twice(mc: Runtime) -> None:
    memory = mc.malloc()
    mc.good("mcFree", memory)
    mc.refused(1, "mcFree", memory)


@program("mcFree: no such memory begins at this address (refused: 1)")
def freed_as_another_kind(mc: Runtime) -> None:
    mc.refused(1, "mcFree", mc.pinned())


@program("mcMemcpyAsync: the kind 2 for a copy of kind 1 (refused: 1)")
def a_copy_of_another_kind(mc: Runtime) -> None:
    mc.refused(1, "mcMemcpyAsync", mc.malloc(), mc.pinned(), 16, D2H, mc.stream())


@program("mcMemcpyAsync: bytes beyond the end of an allocation (refused: 1)")
def a_copy_beyond_the_end(mc: Runtime) -> None:
    mc.refused(1, "mcMemcpyAsync", mc.malloc(), mc.pinned(), 4097, H2D, mc.stream())


@program("mcFree: work that uses the memory is queued (refused: 1)", DELAY_US="200000")
def freed_while_it_is_used(mc: Runtime) -> None:
    memory, stream = mc.malloc(), mc.stream()
    for _ in range(20):
        mc.good("mcMemcpyAsync", memory, mc.pinned(), 16, H2D, stream)
    mc.refused(1, "mcFree", memory)
    mc.good("mcStreamSynchronize", stream)


@program("mcStreamSynchronize: no live stream has this handle (refused: 400)")
def a_stream_that_was_destroyed(mc: Runtime) -> None:
    stream = mc.stream()
    mc.good("mcStreamDestroy", stream)
    mc.refused(400, "mcStreamSynchronize", stream)


@program("mcStreamQuery: the stream is of a device that is not current (refused: 400)")
def a_stream_of_another_device(mc: Runtime) -> None:
    stream = mc.stream()
    mc.good("mcSetDevice", 1)
    mc.refused(400, "mcStreamQuery", stream)


@program("mcEventRecord: no live event has this handle, or it is of another device (refused: 400)")
def an_event_of_another_device(mc: Runtime) -> None:
    event = mc.event()
    mc.good("mcSetDevice", 1)
    mc.refused(400, "mcEventRecord", event, mc.stream())


@program("mcEventDestroy: no live event has this handle (refused: 400)")
def an_event_that_was_destroyed(mc: Runtime) -> None:
    event = mc.event()
    mc.good("mcEventDestroy", event)
    mc.refused(400, "mcEventDestroy", event)


@program("mcEventElapsedTime: an event has no time (refused: 400)")
def time_of_events_without_timing(mc: Runtime) -> None:
    start, end, stream = mc.event(2), mc.event(), mc.stream()
    for event in (start, end):
        mc.good("mcEventRecord", event, stream)
    mc.good("mcStreamSynchronize", stream)
    elapsed = ctypes.c_float()
    mc.refused(400, "mcEventElapsedTime", ctypes.byref(elapsed), start, end)


@program("mcStreamSynchronize: a function of a stream called the runtime (refused: 800)")
def a_function_that_calls_the_runtime(mc: Runtime) -> None:
    stream = mc.stream()
    function = FUNCTION(lambda _: mc.refused(800, "mcStreamSynchronize", None))
    mc.good("mcLaunchHostFunc", stream, function, None)
    mc.good("mcStreamSynchronize", stream)


@program("mcStreamSynchronize: the stream is captured (refused: 900)")
def a_captured_stream_is_waited_for(mc: Runtime) -> None:
    stream = mc.stream()
    mc.good("mcStreamBeginCapture", stream, 0)
    mc.refused(900, "mcStreamSynchronize", stream)
    status = ctypes.c_int()
    mc.good("mcStreamIsCapturing", stream, ctypes.byref(status))
    assert status.value == 2, "the capture is invalid"
    mc.refused(901, "mcStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))


@program("mcStreamBeginCapture: the default stream, or another mode (refused: 900)")
def the_default_stream_is_captured(mc: Runtime) -> None:
    mc.refused(900, "mcStreamBeginCapture", None, 0)


@program("mcMemcpyAsync: a copy of ordinary memory on a captured stream (refused: 900)")
def a_capture_of_ordinary_memory(mc: Runtime) -> None:
    stream, memory = mc.stream(), mc.malloc()
    mc.good("mcStreamBeginCapture", stream, 0)
    mc.refused(900, "mcMemcpyAsync", memory, ctypes.create_string_buffer(16), 16, H2D, stream)


@program("mcStreamEndCapture: a stream has not come back to the capture (refused: 904)")
def a_capture_that_a_stream_does_not_leave(mc: Runtime) -> None:
    stream, other, event = mc.stream(), mc.stream(), mc.event(2)
    mc.good("mcStreamBeginCapture", stream, 0)
    mc.good("mcEventRecord", event, stream)
    mc.good("mcStreamWaitEvent", other, event, 0)
    mc.refused(904, "mcStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))


@program("mcStreamEndCapture: a stream has not come back to the capture (refused: 904)")
def a_capture_that_a_stream_leaves_with_work_to_do(mc: Runtime) -> None:
    stream, other, event = mc.stream(), mc.stream(), mc.event(2)
    mc.good("mcStreamBeginCapture", stream, 0)
    mc.good("mcEventRecord", event, stream)
    mc.good("mcStreamWaitEvent", other, event, 0)
    mc.good("mcEventRecord", event, other)
    mc.good("mcMemcpyAsync", mc.malloc(), mc.pinned(), 1, H2D, other)
    mc.good("mcStreamWaitEvent", stream, event, 0)
    mc.refused(904, "mcStreamEndCapture", stream, ctypes.byref(ctypes.c_void_p()))


@program("mcIpcOpenMemHandle: the handle is of this process (refused: 1)")
def an_import_of_ones_own(mc: Runtime) -> None:
    class Handle(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_char * 64),)

    handle = Handle()
    mc.good("mcIpcGetMemHandle", ctypes.byref(handle), mc.malloc())
    mc.refused(1, "mcIpcOpenMemHandle", ctypes.byref(ctypes.c_void_p()), handle, 1)


@program("mcDeviceEnablePeerAccess: flags, no such device, or the device itself (refused: 1)")
def a_peer_of_itself(mc: Runtime) -> None:
    mc.refused(1, "mcDeviceEnablePeerAccess", 0, 0)


@program("mcModuleLaunchKernel: a pointer is not to memory that the device reaches (refused: 1)")
def a_kernel_over_ordinary_memory(mc: Runtime) -> None:
    module = mc.new("mcModuleLoadData", b"simulated-mcfatbin axpy")
    function = mc.new("mcModuleGetFunction", module, b"axpy")
    words = (ctypes.c_uint64 * 4)(
        ctypes.addressof(ctypes.create_string_buffer(64)), mc.malloc(), 0, 4
    )
    size = ctypes.sizeof(ctypes.c_uint64)
    places = [ctypes.addressof(words) + index * size for index in range(4)]
    addresses = (ctypes.c_void_p * 4)(*places)
    shape = (1, 1, 1, 64, 1, 1, 0)
    mc.refused(1, "mcModuleLaunchKernel", function, *shape, mc.stream(), addresses, None)


@program("mcGetDevice: the runtime was initialised before this process was forked (refused: 3)")
def a_forked_child(mc: Runtime) -> None:
    mc.stream()
    child = os.fork()
    if child == 0:
        mc.refused(3, "mcGetDevice", ctypes.byref(ctypes.c_int()))
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


if __name__ == "__main__":
    CASES[sys.argv[2]].call(Runtime(sys.argv[1]))
