"""Programs that each misuse the runtime, with the line that it is recorded as."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable

from core.vendors.ascend.simulated.importer import export, importer
from core.vendors.ascend.simulated.library import (
    D2D,
    D2H,
    GLOBAL,
    H2D,
    H2H,
    IPC,
    RELAXED,
    SYNC,
    THREAD_LOCAL,
    TIME_LINE,
    Acl,
    program,
)


def in_thread(action: Callable[[], None]) -> None:
    """Runs an action in a thread of its own; what it raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]


# Life, devices, contexts.


@program("aclrtSetDevice: called before aclInit (refused: 100001)")
def before_init(acl: Acl) -> None:
    acl.refused(100001, "aclrtSetDevice", 0)


@program("aclFinalize: not initialised, or finalised already (refused: 100037)")
def finalized_twice(acl: Acl) -> None:
    acl.aclInit(None)
    acl.aclFinalize()
    acl.refused(100037, "aclFinalize")


@program(
    "aclFinalize: leak: 1 contexts (not noticed by the vendor)",
    "aclFinalize: leak: 1 streams (not noticed by the vendor)",
    "aclFinalize: leak: 2 events (not noticed by the vendor)",
    "aclFinalize: leak: 1 blocks (not noticed by the vendor)",
    "aclFinalize: leak: 1 host_blocks (not noticed by the vendor)",
)
def leaks_at_finalize(acl: Acl) -> None:
    acl.start()
    acl.malloc()
    acl.pinned()
    acl.event()
    acl.event()
    acl.new("aclrtCreateContext", 0)
    acl.stream()
    acl.aclFinalize()


@program("exit: leak: 1 blocks (not noticed by the vendor)", LEAKS="exit")
def leaks_at_exit(acl: Acl) -> None:
    acl.start()
    acl.malloc()


@program("aclrtSetDevice: there is no device 2 (refused: 107001)")
def device_that_is_not_there(acl: Acl) -> None:
    acl.aclInit(None)
    acl.refused(107001, "aclrtSetDevice", 2)


@program("aclrtResetDevice: reset more often than set (refused: 107000)")
def reset_more_often_than_set(acl: Acl) -> None:
    acl.start()
    acl.aclrtResetDevice(0)
    acl.refused(107000, "aclrtResetDevice", 0)


@program(
    "aclrtResetDevice: leak: 1 streams of the context (not noticed by the vendor)",
    "aclrtResetDevice: leak: 1 blocks of the device (not noticed by the vendor)",
    "aclrtMalloc: the thread's context was destroyed (refused: 107002)",
)
def reset_with_what_is_alive(acl: Acl) -> None:
    acl.start()
    acl.malloc()
    acl.stream()
    acl.aclrtResetDevice(0)
    acl.refused(107002, "aclrtMalloc", ctypes.byref(ctypes.c_void_p()), 64, 0)


@program("aclrtMalloc: the thread has no context (refused: 107002)")
def thread_without_a_context(acl: Acl) -> None:
    acl.start()
    out = ctypes.byref(ctypes.c_void_p())
    in_thread(lambda: acl.refused(107002, "aclrtMalloc", out, 64, 0))


@program("aclrtSetCurrentContext: the context was destroyed (refused: 107017)")
def destroyed_context(acl: Acl) -> None:
    acl.start()
    context = acl.new("aclrtCreateContext", 0)
    acl.aclrtDestroyContext(context)
    acl.refused(107017, "aclrtSetCurrentContext", context)


@program("aclrtDestroyContext: the default context ends with its device (refused: 107000)")
def default_context_destroyed(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtDestroyContext", acl.new("aclrtGetCurrentContext"))


@program(
    "aclrtMalloc: called in a forked child of a process that uses the device (refused: 507000)"
)
def forked_child(acl: Acl) -> None:
    acl.start()
    child = os.fork()
    if child == 0:
        out = ctypes.byref(ctypes.c_void_p())
        os._exit(acl.code("aclrtMalloc", out, 64, 0) != 507000)
    assert os.waitpid(child, 0)[1] == 0

    # What the child was recorded for is in its own memory, and in the report's file.
    assert acl.misuses() == []


# Memory.


@program("aclrtMalloc: the size is 0 (refused: 107000)")
def size_of_zero(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtMalloc", ctypes.byref(ctypes.c_void_p()), 0, 0)


@program("aclrtMalloc: there is no such policy: 8 (refused: 107018)")
def unknown_policy(acl: Acl) -> None:
    acl.start()
    acl.refused(107018, "aclrtMalloc", ctypes.byref(ctypes.c_void_p()), 64, 8)


@program("aclrtFree: the address is NULL (refused: 107000)")
def free_of_null(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtFree", None)


@program("aclrtFree: freed twice (refused: 107000)")
def double_free(acl: Acl) -> None:
    acl.start()
    block = acl.malloc()
    acl.aclrtFree(block)
    acl.refused(107000, "aclrtFree", block)


@program("aclrtFree: the address is not one of the runtime's (refused: 107000)")
def free_of_a_foreign_pointer(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtFree", acl.pageable(b"x"))


@program("aclrtFree: not the start of a block (refused: 107000)")
def free_of_an_inner_pointer(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtFree", acl.malloc() + 64)


@program(
    "aclrtFree: memory of the host (refused: 107000)",
    "aclrtFreeHost: memory of a device (refused: 107000)",
)
def free_by_the_other_function(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtFree", acl.pinned())
    acl.refused(107000, "aclrtFreeHost", acl.malloc())


@program("aclrtFree: the block is used by work that has not run (not noticed by the vendor)")
def free_while_work_uses_the_block(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc()
    with acl.held(stream):
        acl.aclrtMemsetAsync(block, 256, 1, 256, stream)
        acl.aclrtFree(block)
    acl.aclrtSynchronizeStream(stream)


@program("aclrtFreeHost: the block is used by work that has not run (not noticed by the vendor)")
def free_of_pinned_memory_while_a_copy_uses_it(acl: Acl) -> None:
    acl.start()
    stream, block, host = acl.stream(), acl.malloc(), acl.pinned()
    with acl.held(stream):
        acl.aclrtMemcpyAsync(block, 256, host, 256, H2D, stream)
        acl.aclrtFreeHost(host)
    acl.aclrtSynchronizeStream(stream)


@program("aclrtHostRegister: the range overlaps memory that the runtime has (refused: 107000)")
def registered_twice(acl: Acl) -> None:
    acl.start()
    host, out = acl.pageable(bytes(256)), ctypes.c_void_p()
    acl.aclrtHostRegister(host, 256, 0, ctypes.byref(out))
    acl.refused(107000, "aclrtHostRegister", host + 128, 16, 0, ctypes.byref(out))
    acl.aclrtHostUnregister(host)


@program("aclrtHostUnregister: the address is not one of the runtime's (refused: 107000)")
def unregistered_without_registration(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtHostUnregister", acl.pageable(b"x"))


# Copies and fills.


@program("aclrtMemcpy: more than the destination's size (refused: 107000)")
def copy_of_more_than_the_destination(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtMemcpy", acl.malloc(), 16, acl.pageable(bytes(32)), 32, H2D)


@program("aclrtMemcpy: an address is NULL, or the size is 0 (refused: 107000)")
def copy_of_nothing(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtMemcpy", acl.malloc(), 16, acl.pageable(bytes(16)), 0, H2D)


@program(
    "aclrtMemcpy: kind 2 does not fit where the addresses lie (refused: 107000)",
    "aclrtMemcpyAsync: kind 3 does not fit where the addresses lie (refused: 107000)",
)
def copy_of_another_kind(acl: Acl) -> None:
    acl.start()
    block, host, stream = acl.malloc(), acl.pageable(bytes(16)), acl.stream()
    acl.refused(107000, "aclrtMemcpy", block, 16, host, 16, D2H)
    acl.refused(107000, "aclrtMemcpyAsync", block, 16, host, 16, D2D, stream)


@program(
    "aclrtMemcpy: the destination ends 1 bytes beyond the end of its block of 100 (refused: 107000)",
    "aclrtMemsetAsync: the destination ends 60 bytes beyond the end of its block of 100 (refused: 107000)",
)
def beyond_the_end_of_a_block(acl: Acl) -> None:
    acl.start()
    block, stream = acl.malloc(100), acl.stream()
    acl.refused(107000, "aclrtMemcpy", block, 101, acl.pageable(bytes(101)), 101, H2D)
    acl.refused(107000, "aclrtMemsetAsync", block + 64, 96, 0, 96, stream)


@program("aclrtMemcpyAsync: the destination lies in no allocation that is alive (refused: 107000)")
def copy_to_memory_that_was_freed(acl: Acl) -> None:
    acl.start()
    block, host, stream = acl.malloc(), acl.pinned(), acl.stream()
    acl.aclrtFree(block)
    acl.refused(107000, "aclrtMemcpyAsync", block, 256, host, 256, H2D, stream)


@program("aclrtMemcpyAsync: a copy from host to host cannot be queued (refused: 207000)")
def queued_copy_from_host_to_host(acl: Acl) -> None:
    acl.start()
    one, other, stream = acl.pinned(), acl.pinned(), acl.stream()
    acl.refused(207000, "aclrtMemcpyAsync", one, 16, other, 16, H2H, stream)


@program("aclrtMemcpy: the source is used by work that has not run (not noticed by the vendor)")
def copy_before_the_stream_was_synchronized(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc()
    with acl.held(stream):
        acl.aclrtMemsetAsync(block, 256, 1, 64, stream)
        acl.read(block + 64, 64)
        acl.read(block, 64)
    acl.aclrtSynchronizeStream(stream)


@program(
    "aclrtMemset: the destination is used by work that has not run (not noticed by the vendor)"
)
def fill_before_the_stream_was_synchronized(acl: Acl) -> None:
    acl.start()
    stream, block, host = acl.stream(), acl.malloc(), acl.pinned()
    with acl.held(stream):
        acl.aclrtMemcpyAsync(host, 256, block, 256, D2H, stream)
        acl.aclrtMemset(block, 256, 0, 256)
    acl.aclrtSynchronizeStream(stream)


@program("aclrtMemset: memory of the host that is not the runtime's (refused: 107000)")
def fill_of_pageable_memory(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtMemset", acl.pageable(bytes(16)), 16, 0, 16)


@program("aclrtMemcpy2d: rows are wider than their pitch (refused: 107000)")
def rows_wider_than_their_pitch(acl: Acl) -> None:
    acl.start()
    arguments = (acl.malloc(), 16, acl.pageable(bytes(64)), 8, 16, 2, H2D)
    acl.refused(107000, "aclrtMemcpy2d", *arguments)


@program("aclrtMemcpy: peer access between the devices was not enabled (refused: 107000)")
def copy_between_devices_that_are_no_peers(acl: Acl) -> None:
    acl.start(0)
    one = acl.malloc()
    acl.aclrtSetDevice(1)
    acl.refused(107000, "aclrtMemcpy", acl.malloc(), 64, one, 64, D2D)


# Streams.


@program("aclrtSynchronizeStream: the stream was destroyed (refused: 107017)")
def destroyed_stream(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.aclrtDestroyStream(stream)
    acl.refused(107017, "aclrtSynchronizeStream", stream)


@program(
    "aclrtSynchronizeStream: the handle of a different kind: event, not stream (refused: 107017)"
)
def event_as_a_stream(acl: Acl) -> None:
    acl.start()
    acl.refused(107017, "aclrtSynchronizeStream", acl.event())


@program("aclrtSynchronizeStream: not a stream (refused: 107017)")
def address_as_a_stream(acl: Acl) -> None:
    acl.start()
    acl.refused(107017, "aclrtSynchronizeStream", acl.pageable(bytes(64)))


@program(
    "aclrtMemsetAsync: the stream belongs to another context than the thread's (refused: 107003)",
    "aclrtDestroyStream: the stream belongs to another context than the thread's (refused: 107003)",
)
def stream_of_another_context(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.aclrtSetDevice(1)
    acl.refused(107003, "aclrtMemsetAsync", acl.malloc(), 64, 0, 64, stream)
    acl.refused(107003, "aclrtDestroyStream", stream)


@program("aclrtDestroyStream: the stream has work that has not run (not noticed by the vendor)")
def stream_destroyed_with_work(acl: Acl) -> None:
    acl.start()
    stream, gate = acl.stream(), threading.Event()
    acl.aclrtLaunchHostFunc(stream, acl.function(gate.wait), None)

    def open_when_recorded() -> None:
        while not acl.misuses():
            time.sleep(0.001)
        gate.set()

    # The call waits for the work, so that another thread lets it go on.
    thread = threading.Thread(target=open_when_recorded)
    thread.start()
    acl.aclrtDestroyStream(stream)
    thread.join()


@program("aclrtDestroyStream: the default stream cannot be destroyed (refused: 107000)")
def default_stream_destroyed(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtDestroyStream", acl.new("aclrtCtxGetCurrentDefaultStream"))


@program(
    "aclrtCreateStreamWithConfig: no output, a priority above 7 or an unknown flag (refused: 107000)"
)
def unknown_priority(acl: Acl) -> None:
    acl.start()
    out = ctypes.byref(ctypes.c_void_p())
    acl.refused(107000, "aclrtCreateStreamWithConfig", out, 8, 0)


# Events.


@program("aclrtRecordEvent: the event was destroyed (refused: 107017)")
def destroyed_event(acl: Acl) -> None:
    acl.start()
    event = acl.event()
    acl.aclrtDestroyEvent(event)
    acl.refused(107017, "aclrtRecordEvent", event, None)


@program("aclrtStreamWaitEvent: the event was made without the flag SYNC (refused: 107000)")
def wait_for_an_event_without_sync(acl: Acl) -> None:
    acl.start()
    event = acl.event(TIME_LINE)
    acl.aclrtRecordEvent(event, None)
    acl.refused(107000, "aclrtStreamWaitEvent", acl.stream(), event)


@program(
    "aclrtEventElapsedTime: an event was made without the flag TIME_LINE (refused: 107006)",
    "aclrtEventElapsedTime: an event was not recorded, or not reached (refused: 107006)",
    "aclrtEventElapsedTime: the end was reached before the start (refused: 107007)",
)
def time_that_events_do_not_have(acl: Acl) -> None:
    acl.start()
    milliseconds = ctypes.byref(ctypes.c_float())
    plain, one, other = acl.event(), acl.event(TIME_LINE), acl.event(TIME_LINE)
    acl.refused(107006, "aclrtEventElapsedTime", milliseconds, plain, plain)
    acl.refused(107006, "aclrtEventElapsedTime", milliseconds, one, other)
    acl.aclrtRecordEvent(one, None)
    acl.aclrtRecordEvent(other, None)
    acl.aclrtSynchronizeEvent(other)
    acl.refused(107007, "aclrtEventElapsedTime", milliseconds, other, one)


@program(
    *(
        f"{name}: not for events made by aclrtCreateEventExWithFlag (refused: 207000)"
        for name in ("aclrtResetEvent", "aclrtQueryEvent", "aclrtQueryEventWaitStatus")
    )
)
def calls_that_ex_events_do_not_have(acl: Acl) -> None:
    acl.start()
    event, out = acl.event(), ctypes.byref(ctypes.c_int())
    acl.refused(207000, "aclrtResetEvent", event, None)
    acl.refused(207000, "aclrtQueryEvent", event, out)
    acl.refused(207000, "aclrtQueryEventWaitStatus", event, out)


@program(
    "aclrtStreamWaitEvent: the event was never recorded: the stream would wait for ever (refused: 107000)"
)
def wait_for_a_plain_event_that_was_never_recorded(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtStreamWaitEvent", acl.stream(), acl.new("aclrtCreateEvent"))


@program(
    "aclrtDestroyEvent: a stream has not done its wait for the event (not noticed by the vendor)"
)
def plain_event_destroyed_while_a_stream_waits(acl: Acl) -> None:
    acl.start()
    event, one, other = acl.new("aclrtCreateEvent"), acl.stream(), acl.stream()
    with acl.held(one):
        acl.aclrtRecordEvent(event, one)
        acl.aclrtStreamWaitEvent(other, event)
        acl.aclrtDestroyEvent(event)
    acl.aclrtSynchronizeDevice()


@program("aclrtRecordEvent: the event belongs to another device than the stream (refused: 107003)")
def event_recorded_on_another_device(acl: Acl) -> None:
    acl.start(0)
    event = acl.event()
    acl.aclrtSetDevice(1)
    acl.refused(107003, "aclrtRecordEvent", event, acl.stream())


@program("aclrtCreateEventExWithFlag: the flag IPC stands alone (refused: 107000)")
def ipc_flag_with_another(acl: Acl) -> None:
    acl.start()
    out = ctypes.byref(ctypes.c_void_p())
    acl.refused(107000, "aclrtCreateEventExWithFlag", out, IPC | SYNC)


# Host functions.


@program("aclrtLaunchCallback: no thread is subscribed to the stream (refused: 107015)")
def callback_without_a_subscription(acl: Acl) -> None:
    acl.start()
    function = acl.function(lambda: None)
    acl.refused(107015, "aclrtLaunchCallback", function, None, 1, acl.stream())


@program(
    "aclrtSubscribeReport: a thread is subscribed to the stream already (refused: 107011)",
    "aclrtUnSubscribeReport: the thread is not subscribed to the stream (refused: 107012)",
    "aclrtDestroyStream: a thread is subscribed to the stream (not noticed by the vendor)",
)
def subscriptions_that_do_not_match(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.aclrtSubscribeReport(7, stream)
    acl.refused(107011, "aclrtSubscribeReport", 8, stream)
    acl.refused(107012, "aclrtUnSubscribeReport", 8, stream)
    acl.aclrtDestroyStream(stream)


@program(
    "aclrtLaunchHostFunc: aclrtLaunchCallback and aclrtLaunchHostFunc on one stream (not noticed by the vendor)"
)
def both_kinds_of_host_functions(acl: Acl) -> None:
    acl.start()
    stream, self = acl.stream(), threading.get_ident()
    acl.aclrtSubscribeReport(self, stream)
    acl.aclrtLaunchCallback(acl.function(lambda: None), None, 1, stream)
    acl.aclrtLaunchHostFunc(stream, acl.function(lambda: None), None)
    acl.aclrtProcessReport(-1)
    acl.aclrtSynchronizeStream(stream)


@program(
    "aclrtSynchronizeDevice: called in a host function (refused: 107000)",
    "aclrtMalloc: called in a host function (refused: 107000)",
)
def calls_in_a_host_function(acl: Acl) -> None:
    acl.start()
    stream, codes = acl.stream(), list[int]()

    def function() -> None:
        codes.append(acl.code("aclrtSynchronizeDevice"))
        codes.append(acl.code("aclrtMalloc", ctypes.byref(ctypes.c_void_p()), 64, 0))

    acl.aclrtLaunchHostFunc(stream, acl.function(function), None)
    acl.aclrtSynchronizeStream(stream)
    assert codes == [107000, 107000]


# Captures.


@program(
    "aclmdlRICaptureBegin: the default stream cannot be captured (refused: 107000)",
)
def capture_of_the_default_stream(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclmdlRICaptureBegin", None, GLOBAL)


def end_refused(acl: Acl, code: int, stream: int) -> None:
    """Ends a capture that must be refused."""
    acl.refused(code, "aclmdlRICaptureEnd", stream, ctypes.byref(ctypes.c_void_p()))


@program(
    "aclrtMemcpy: not while a stream is being captured (refused: 107030)",
    "aclrtMemset: not while a stream is being captured (refused: 107030)",
    "aclrtMemcpyAsync: pageable memory in a capture (refused: 107030)",
)
def host_calls_in_a_capture(acl: Acl) -> None:
    acl.start()
    stream, block, host = acl.stream(), acl.malloc(), acl.pageable(bytes(64))
    acl.aclmdlRICaptureBegin(stream, THREAD_LOCAL)
    acl.refused(107030, "aclrtMemcpy", block, 64, host, 64, H2D)
    acl.refused(107030, "aclrtMemset", block, 64, 0, 64)
    acl.refused(107030, "aclrtMemcpyAsync", block, 64, host, 64, H2D, stream)
    end_refused(acl, 507903, stream)


@program("aclrtMemset: not while a stream is being captured (refused: 107030)")
def another_threads_call_in_a_global_capture(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc()
    acl.aclmdlRICaptureBegin(stream, GLOBAL)

    def other() -> None:
        acl.aclrtSetDevice(0)
        acl.refused(107030, "aclrtMemset", block, 64, 0, 64)

    in_thread(other)
    end_refused(acl, 507903, stream)


@program("aclrtMemcpyAsync: pageable memory in a capture (refused: 107030)")
def pageable_memory_in_a_relaxed_capture(acl: Acl) -> None:
    acl.start()
    stream, block, host = acl.stream(), acl.malloc(), acl.pageable(bytes(64))
    acl.aclmdlRICaptureBegin(stream, RELAXED)
    acl.refused(107030, "aclrtMemcpyAsync", block, 64, host, 64, H2D, stream)
    end_refused(acl, 507903, stream)


@program(
    "aclrtSynchronizeStream: the stream is being captured (refused: 107027)",
    "aclrtStreamQuery: the stream is being captured (refused: 107027)",
    "aclrtDestroyStream: the stream is being captured (refused: 107027)",
    "aclmdlRICaptureBegin: the stream is being captured (refused: 107027)",
)
def captured_stream_used_by_the_host(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.aclmdlRICaptureBegin(stream, RELAXED)
    acl.refused(107027, "aclrtSynchronizeStream", stream)
    acl.refused(107027, "aclrtStreamQuery", stream, ctypes.byref(ctypes.c_int()))
    acl.refused(107027, "aclrtDestroyStream", stream)
    acl.refused(107027, "aclmdlRICaptureBegin", stream, RELAXED)
    end_refused(acl, 507903, stream)


@program("aclmdlRICaptureEnd: 1 streams have not been joined (refused: 107025)")
def capture_ended_with_an_unjoined_stream(acl: Acl) -> None:
    acl.start()
    stream, side, block, event = acl.stream(), acl.stream(), acl.malloc(), acl.event()
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.aclrtRecordEvent(event, stream)
    acl.aclrtStreamWaitEvent(side, event)
    acl.aclrtRecordEvent(event, side)
    acl.aclrtStreamWaitEvent(stream, event)
    acl.aclrtMemsetAsync(block, 64, 0, 64, side)
    end_refused(acl, 107025, stream)
    # The side stream is free again.
    acl.aclrtSynchronizeStream(side)


@program("aclmdlRICaptureEnd: the capture began in another thread (refused: 107038)")
def capture_ended_by_another_thread(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.aclmdlRICaptureBegin(stream, THREAD_LOCAL)

    def other() -> None:
        acl.aclrtSetDevice(0)
        end_refused(acl, 107038, stream)

    in_thread(other)
    end_refused(acl, 507903, stream)


@program(
    "aclmdlRICaptureEnd: the stream is not being captured (refused: 107029)",
    "aclmdlRICaptureEnd: the capture began on another stream (refused: 107036)",
)
def capture_ended_on_another_stream(acl: Acl) -> None:
    acl.start()
    stream, side, event = acl.stream(), acl.stream(), acl.event()
    end_refused(acl, 107029, stream)
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.aclrtRecordEvent(event, stream)
    acl.aclrtStreamWaitEvent(side, event)
    end_refused(acl, 107036, side)
    end_refused(acl, 507903, stream)


@program(
    "aclrtStreamWaitEvent: a captured stream waits for an event that was recorded outside (refused: 107024)"
)
def capture_that_waits_for_what_is_outside(acl: Acl) -> None:
    acl.start()
    stream, event = acl.stream(), acl.event()
    acl.aclrtRecordEvent(event, None)
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.refused(107024, "aclrtStreamWaitEvent", stream, event)
    end_refused(acl, 507903, stream)


@program(
    "aclrtSynchronizeEvent: the event was recorded in a capture (refused: 107028)",
    "aclrtQueryEventStatus: the event was recorded in a capture (refused: 107028)",
    "aclrtStreamWaitEvent: the event was recorded in a capture that has ended (refused: 107028)",
)
def captured_event_used_by_the_host(acl: Acl) -> None:
    acl.start()
    stream, event = acl.stream(), acl.event()
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.aclrtRecordEvent(event, stream)
    acl.refused(107028, "aclrtSynchronizeEvent", event)
    acl.refused(107028, "aclrtQueryEventStatus", event, ctypes.byref(ctypes.c_int()))
    end_refused(acl, 507903, stream)
    acl.refused(107028, "aclrtStreamWaitEvent", stream, event)


@program(
    "aclmdlRIExecuteAsync: the graph uses a block that was freed: aclrtMemsetAsync (not noticed by the vendor)"
)
def graph_over_memory_that_was_freed(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc()
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.aclrtMemsetAsync(block, 64, 0, 64, stream)
    model = ctypes.c_void_p()
    acl.aclmdlRICaptureEnd(stream, ctypes.byref(model))
    acl.aclrtFree(block)
    acl.aclmdlRIExecuteAsync(model, stream)
    acl.aclrtSynchronizeStream(stream)
    acl.aclmdlRIDestroy(model)


@program("aclmdlRIDestroy: the model has runs that have not ended (refused: 107037)")
def graph_destroyed_while_it_runs(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    model = ctypes.c_void_p()
    acl.aclmdlRICaptureEnd(stream, ctypes.byref(model))
    with acl.held(stream):
        acl.aclmdlRIExecuteAsync(model, stream)
        acl.refused(107037, "aclmdlRIDestroy", model)
    acl.aclrtSynchronizeStream(stream)
    acl.aclmdlRIDestroy(model)


# Kernels, and memory of other processes.


@program(
    "simulated_ascend_address: a kernel uses memory that is not allocated (not noticed by the vendor)",
    "simulated_ascend_address: a kernel uses memory 1 bytes beyond the end of its block of 256"
    " (not noticed by the vendor)",
)
def kernel_that_uses_memory_that_it_has_not(acl: Acl) -> None:
    acl.start()
    stream, block, freed = acl.stream(), acl.malloc(), acl.malloc()
    acl.aclrtFree(freed)

    def kernel() -> int:
        dead = acl.code("simulated_ascend_address", freed, 8)
        beyond = acl.code("simulated_ascend_address", block, 257)
        return int(dead != 0 or beyond != 0)

    acl.simulated_ascend_launch(stream, b"kernel", acl.kernel(kernel), None, None, 0)
    acl.aclrtSynchronizeStream(stream)


class Use(ctypes.Structure):
    """simulated_ascend_use."""

    _fields_ = [("address", ctypes.c_void_p), ("size", ctypes.c_size_t), ("writes", ctypes.c_int)]


@program(
    "simulated_ascend_launch: softmax uses memory that is not allocated (refused: 107000)",
    "simulated_ascend_launch: softmax uses memory 44 bytes beyond the end of its block of 256 (refused: 107000)",
    "simulated_ascend_launch: softmax uses memory of another device, which is no peer (refused: 107000)",
)
def kernel_queued_with_memory_that_it_has_not(acl: Acl) -> None:
    acl.start(1)
    elsewhere = acl.malloc()
    acl.aclrtSetDevice(0)
    stream, block, freed = acl.stream(), acl.malloc(), acl.malloc()
    acl.aclrtFree(freed)
    kernel = acl.kernel(lambda: 0)
    for use in (Use(freed, 8, 1), Use(block, 300, 0), Use(elsewhere, 8, 0)):
        arguments = (stream, b"softmax", kernel, None, ctypes.byref(use), 1)
        acl.refused(107000, "simulated_ascend_launch", *arguments)


@program("aclrtFree: the block is used by work that has not run (not noticed by the vendor)")
def free_while_a_kernel_uses_the_block(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc()
    use = Use(block, 256, 0)
    with acl.held(stream):
        kernel = acl.kernel(lambda: 0)
        acl.simulated_ascend_launch(stream, b"softmax", kernel, None, ctypes.byref(use), 1)
        acl.aclrtFree(block)
    acl.aclrtSynchronizeStream(stream)


@program(
    "aclrtDeviceEnablePeerAccess: the peer must be another device and the flags 0 (refused: 107000)"
)
def peer_of_itself(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtDeviceEnablePeerAccess", 0, 0)


@program("aclrtDeviceDisablePeerAccess: the peer was not enabled (refused: 107000)")
def peer_that_was_not_enabled(acl: Acl) -> None:
    acl.start()
    acl.refused(107000, "aclrtDeviceDisablePeerAccess", 1)


@program("aclrtIpcMemImportByKey: the key is of this process (refused: 107000)")
def import_of_the_own_key(acl: Acl) -> None:
    acl.start()
    block, key = acl.malloc(), ctypes.create_string_buffer(65)
    acl.aclrtIpcMemGetExportKey(block, 256, key, 65, 1)
    out = ctypes.byref(ctypes.c_void_p())
    acl.refused(107000, "aclrtIpcMemImportByKey", out, key, 0)


@program("aclrtIpcMemGetExportKey: a key has 65 bytes, and flags are 0 or 1 (refused: 107000)")
def key_of_another_length(acl: Acl) -> None:
    acl.start()
    key = ctypes.create_string_buffer(64)
    acl.refused(107000, "aclrtIpcMemGetExportKey", acl.malloc(), 256, key, 64, 1)


@program(
    "aclrtFree: another process has not closed the block that it imported (not noticed by the vendor)"
)
def export_freed_before_the_import_was_closed(acl: Acl) -> None:
    with importer(acl) as child:
        block = acl.malloc()
        child.send(export(acl, block))
        assert child.recv() == 0
        acl.aclrtFree(block)


@program("aclrtIpcMemImportByKey: the exporter does not let this process import (refused: 207006)")
def import_that_the_exporter_does_not_allow(acl: Acl) -> None:
    with importer(acl) as child:
        child.send(export(acl, acl.malloc(), flags=0))
        assert child.recv() == 207006
