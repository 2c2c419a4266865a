"""Programs that use the runtime correctly, of which nothing is recorded."""

from __future__ import annotations

import ctypes
import os
import threading

from core.vendors.ascend.simulated.importer import export, importer
from core.vendors.ascend.simulated.library import (
    D2D,
    D2H,
    GLOBAL,
    H2D,
    H2H,
    RELAXED,
    STOP,
    SYNC,
    TIME_LINE,
    Acl,
    program,
)

NOT_READY, COMPLETE = 0, 1  # of QueryEventStatus


class Attributes(ctypes.Structure):
    """aclrtPtrAttributes."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("id", "type", "page", "a", "b", "c", "d")]


def readable(address: int) -> bool:
    """Whether the process can read a byte there, asked of the system, which does not crash."""
    libc, (end, begin) = ctypes.CDLL(None, use_errno=True), os.pipe()
    count = libc.write(begin, ctypes.c_void_p(address), 1)
    os.close(begin)
    os.close(end)
    return int(count) == 1


def memory(acl: Acl) -> tuple[int, int]:
    """Free and all bytes of the device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    acl.aclrtGetMemInfo(1, ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


# Life, devices, contexts.


@program()
def life(acl: Acl) -> None:
    assert acl.number("aclrtGetDeviceCount") == 2
    acl.aclInit(None)
    acl.refused(100002, "aclInit", None)
    acl.aclrtSetDevice(1)
    assert acl.number("aclrtGetDevice") == 1
    assert acl.library.aclrtGetSocName() == b"Ascend910B3"
    acl.aclrtSetDevice(1)
    acl.aclrtResetDevice(1)
    block = acl.malloc()
    acl.aclrtFree(block)
    acl.aclrtResetDevice(1)
    acl.aclFinalize()


@program()
def contexts(acl: Acl) -> None:
    acl.start()
    default = acl.new("aclrtGetCurrentContext")
    own = acl.new("aclrtCreateContext", 1)
    assert acl.number("aclrtGetDevice") == 1
    assert acl.new("aclrtGetCurrentContext") == own != default
    streams = [acl.new("aclrtCtxGetCurrentDefaultStream")]
    acl.aclrtSetCurrentContext(default)
    streams.append(acl.new("aclrtCtxGetCurrentDefaultStream"))
    assert len(set(streams)) == 2
    assert acl.live("contexts") == 1
    acl.aclrtDestroyContext(own)
    assert acl.live("contexts") == acl.live("streams") == 0


@program(ASCEND_RT_VISIBLE_DEVICES="1")
def one_visible_device(acl: Acl) -> None:
    assert acl.number("aclrtGetDeviceCount") == 1
    acl.start()
    uuid = ctypes.create_string_buffer(16)
    acl.aclrtDeviceGetUuid(0, uuid)
    assert uuid.raw[15] == 1


@program(ASCEND_RT_VISIBLE_DEVICES="0,7,1")
def devices_before_one_that_is_not_there(acl: Acl) -> None:
    assert acl.number("aclrtGetDeviceCount") == 1


@program(ASCEND_RT_VISIBLE_DEVICES="0, 1")
def devices_before_one_with_a_space(acl: Acl) -> None:
    assert acl.number("aclrtGetDeviceCount") == 1


NO_DEVICE = 207004


@program(ASCEND_RT_VISIBLE_DEVICES="")
def no_visible_device(acl: Acl) -> None:
    acl.refused(NO_DEVICE, "aclrtGetDeviceCount", ctypes.byref(ctypes.c_uint32()))


@program(ASCEND_RT_VISIBLE_DEVICES="1,0")
def devices_in_descending_order(acl: Acl) -> None:
    acl.refused(NO_DEVICE, "aclrtGetDeviceCount", ctypes.byref(ctypes.c_uint32()))


@program(ASCEND_RT_VISIBLE_DEVICES="0,0")
def a_device_that_is_named_twice(acl: Acl) -> None:
    acl.refused(NO_DEVICE, "aclrtGetDeviceCount", ctypes.byref(ctypes.c_uint32()))


NEWER = ("aclrtLaunchHostFunc", "aclrtIpcMemGetExportKey", "aclrtDeviceGetUuid")


@program(VERSION="8.1")
def symbols_of_an_old_version(acl: Acl) -> None:
    assert not any(hasattr(acl.library, name) for name in NEWER)
    acl.start()
    acl.aclrtFree(acl.malloc())


@program(HIDE="aclrtMallocAlign32,aclrtSetDeviceSatMode")
def hidden_symbols(acl: Acl) -> None:
    assert all(hasattr(acl.library, name) for name in NEWER)
    assert not hasattr(acl.library, "aclrtMallocAlign32")
    assert not hasattr(acl.library, "aclrtSetDeviceSatMode")
    assert hasattr(acl.library, "aclrtMalloc")


@program()
def child_forked_before_use(acl: Acl) -> None:
    child = os.fork()
    if child == 0:
        acl.start()
        acl.aclrtFree(acl.malloc())
        os._exit(len(acl.misuses()))
    assert os.waitpid(child, 0)[1] == 0


@program()
def error_text_is_of_the_thread(acl: Acl) -> None:
    acl.start()
    assert acl.error() is None
    acl.code("aclInit", None)
    others: list[str | None] = []
    thread = threading.Thread(target=lambda: others.append(acl.error()))
    thread.start()
    thread.join()
    assert others == [None]
    assert "100002" in str(acl.error())
    assert acl.error() is None


# Memory.


@program()
def host_cannot_read_device_memory(acl: Acl) -> None:
    acl.start()
    block, stream = acl.malloc(), acl.stream()
    assert not readable(block)
    acl.aclrtMemset(block, 256, 65, 256)
    assert not readable(block)
    seen: list[bytes] = []

    def kernel() -> int:
        seen.append(ctypes.string_at(block, 3))
        return 0

    acl.simulated_ascend_run(stream, acl.kernel(kernel), None)
    acl.aclrtSynchronizeStream(stream)
    assert seen == [b"AAA"]
    assert not readable(block)


@program()
def kernel_translates_addresses(acl: Acl) -> None:
    acl.start()
    block, stream = acl.malloc(), acl.stream()
    acl.aclrtMemset(block, 256, 66, 256)
    seen: list[object] = []

    def kernel() -> int:
        seen.append(
            ctypes.string_at(
                acl.library.simulated_ascend_address(ctypes.c_void_p(block), ctypes.c_size_t(3)), 3
            )
        )
        seen.append(readable(block))
        return 0

    acl.simulated_ascend_launch(stream, b"kernel", acl.kernel(kernel), None, None, 0)
    acl.aclrtSynchronizeStream(stream)
    assert seen == [b"BBB", False]


@program()
def memory_is_as_promised_and_no_better(acl: Acl) -> None:
    acl.start()
    block = acl.malloc()
    assert block % 64 == 0
    assert block % 128 != 0
    # Not zeroed.
    assert acl.read(block, 256) == b"\xff" * 256
    acl.aclrtMemset(block, 256, 0, 256)
    acl.aclrtFree(block)
    assert acl.malloc() != block, "an address that was just freed"


@program(SOC="Ascend910B3")
def blocks_have_room_behind_them(acl: Acl) -> None:
    acl.start()
    before = memory(acl)[0]
    acl.malloc(4096 - 64)
    assert before - memory(acl)[0] == 8192
    acl.new("aclrtMallocAlign32", 4096 - 64, 0)
    assert before - memory(acl)[0] == 12288


@program(SOC="Ascend950PR_9599")
def blocks_of_later_chips_have_no_room_behind_them(acl: Acl) -> None:
    acl.start()
    before = memory(acl)[0]
    acl.malloc(4096 - 64)
    assert before - memory(acl)[0] == 4096


@program(MEMORY="64M")
def memory_ends(acl: Acl) -> None:
    acl.start()
    assert memory(acl) == (64 << 20, 64 << 20)
    block = acl.malloc(40 << 20)
    out = ctypes.byref(ctypes.c_void_p())
    acl.refused(207001, "aclrtMalloc", out, 40 << 20, 0)
    acl.aclrtSetDevice(1)
    acl.malloc(40 << 20)
    acl.aclrtSetDevice(0)
    acl.aclrtFree(block)
    assert memory(acl)[0] == 64 << 20
    acl.malloc(40 << 20)
    free, total = ctypes.c_size_t(9), ctypes.c_size_t(9)
    acl.aclrtGetMemInfo(0, ctypes.byref(free), ctypes.byref(total))
    assert (free.value, total.value) == (0, 0)


@program()
def memory_is_known_by_its_address(acl: Acl) -> None:
    acl.start(1)
    block, pinned, pageable = acl.malloc(), acl.pinned(), acl.pageable(bytes(64))
    found = Attributes()

    def kind(address: int) -> tuple[int, int]:
        acl.aclrtPointerGetAttributes(address, ctypes.byref(found))
        return found.type, found.id

    assert [kind(block), kind(block + 255)] == [(1, 1)] * 2
    assert kind(pinned)[0] == 0
    assert kind(pageable)[0] == 2
    out = ctypes.c_void_p()
    acl.aclrtHostRegister(pageable, 64, 0, ctypes.byref(out))
    assert kind(pageable)[0] == 0
    acl.aclrtHostUnregister(pageable)
    assert kind(pageable)[0] == 2


@program()
def copies(acl: Acl) -> None:
    acl.start()
    one, other, pinned, stream = acl.malloc(16), acl.malloc(16), acl.pinned(16), acl.stream()
    acl.aclrtMemcpy(one, 16, acl.pageable(b"0123456789abcdef"), 16, H2D)
    acl.aclrtMemcpyAsync(other, 16, one, 16, D2D, stream)
    acl.aclrtMemcpyAsync(pinned, 16, other, 16, D2H, stream)
    acl.aclrtSynchronizeStream(stream)
    assert ctypes.string_at(pinned, 16) == b"0123456789abcdef"
    acl.aclrtMemcpy(pinned, 16, acl.pageable(b"x" * 16), 16, H2H)
    acl.aclrtMemcpy2d(one, 8, pinned, 4, 2, 2, H2D)
    assert acl.read(one, 16) == b"xx234567xxabcdef"


@program()
def copies_between_peers(acl: Acl) -> None:
    acl.start(0)
    can = ctypes.c_int32()
    acl.aclrtDeviceCanAccessPeer(ctypes.byref(can), 0, 1)
    assert can.value == 1
    one = acl.malloc(4)
    acl.aclrtMemset(one, 4, 67, 4)
    acl.aclrtDeviceEnablePeerAccess(1, 0)
    acl.aclrtSetDevice(1)
    other = acl.malloc(4)
    acl.aclrtMemcpyAsync(other, 4, one, 4, D2D, None)
    acl.aclrtSynchronizeDevice()
    assert acl.read(other, 4) == b"CCCC"


@program(PEERS="0")
def devices_that_do_not_reach_each_other(acl: Acl) -> None:
    acl.aclInit(None)
    can = ctypes.c_int32(9)
    acl.aclrtDeviceCanAccessPeer(ctypes.byref(can), 0, 1)
    assert can.value == 0


# Streams and events.


@program(DELAY_US="2000")
def pinned_copies_are_asynchronous_and_pageable_ones_are_not(acl: Acl) -> None:
    acl.start()
    stream, block, pinned, held = acl.stream(), acl.malloc(4), acl.pinned(4), acl.stream()
    ctypes.memmove(pinned, b"old!", 4)
    acl.aclrtMemset(block, 4, 68, 4)
    with acl.held(held):
        acl.aclrtMemcpyAsync(pinned, 4, block, 4, D2H, held)
        assert ctypes.string_at(pinned, 4) == b"old!"
        assert acl.number("aclrtStreamQuery", held) == 1
        # Another stream goes on meanwhile.
        pageable = acl.pageable(b"old!")
        acl.aclrtMemcpyAsync(pageable, 4, block, 4, D2H, stream)
        assert ctypes.string_at(pageable, 4) == b"DDDD"
        acl.refused(507046, "aclrtSynchronizeStreamWithTimeout", held, 20)
    acl.aclrtSynchronizeStream(held)
    assert ctypes.string_at(pinned, 4) == b"DDDD"
    assert acl.number("aclrtStreamQuery", held) == 0


@program(DELAY_US="500")
def streams_are_ordered_by_events(acl: Acl) -> None:
    acl.start()
    one, other, block, event = acl.stream(), acl.stream(), acl.malloc(4), acl.event()
    pinned = acl.pinned(4)
    for value in range(20):
        acl.aclrtMemsetAsync(block, 4, value, 4, one)
        acl.aclrtRecordEvent(event, one)
        acl.aclrtStreamWaitEvent(other, event)
        acl.aclrtMemcpyAsync(pinned, 4, block, 4, D2H, other)
        acl.aclrtRecordEvent(event, other)
        acl.aclrtStreamWaitEvent(one, event)
        acl.aclrtSynchronizeEvent(event)
        assert ctypes.string_at(pinned, 4) == bytes([value]) * 4


@program()
def a_wait_keeps_its_record(acl: Acl) -> None:
    acl.start()
    one, other, event = acl.stream(), acl.stream(), acl.event()
    assert acl.number("aclrtQueryEventStatus", event) == COMPLETE
    acl.aclrtSynchronizeEvent(event)
    acl.aclrtStreamWaitEvent(other, event)
    acl.aclrtRecordEvent(event, one)
    acl.aclrtSynchronizeStream(one)
    with acl.held(one):
        acl.aclrtStreamWaitEvent(other, event)
        acl.aclrtRecordEvent(event, one)
        assert acl.number("aclrtQueryEventStatus", event) == NOT_READY
        # The wait is for the first record, which was reached.
        acl.aclrtSynchronizeStream(other)
        acl.refused(507047, "aclrtSynchronizeEventWithTimeout", event, 20)
    acl.aclrtSynchronizeEvent(event)
    assert acl.number("aclrtQueryEventStatus", event) == COMPLETE


@program()
def time_between_events(acl: Acl) -> None:
    acl.start()
    stream, one, other = acl.stream(), acl.event(SYNC | TIME_LINE), acl.new("aclrtCreateEvent")
    acl.aclrtRecordEvent(one, stream)
    pause = threading.Event()
    acl.aclrtLaunchHostFunc(stream, acl.function(lambda: pause.wait(0.02)), None)
    acl.aclrtRecordEvent(other, stream)
    acl.aclrtSynchronizeEvent(other)
    milliseconds = ctypes.c_float()
    acl.aclrtEventElapsedTime(ctypes.byref(milliseconds), one, other)
    assert milliseconds.value >= 20


@program(EVENTS="2")
def plain_events_are_of_the_hardware(acl: Acl) -> None:
    acl.start()
    plain = [acl.new("aclrtCreateEvent") for _ in range(3)]
    for event in plain[:2]:
        acl.aclrtRecordEvent(event, None)
    acl.refused(207007, "aclrtRecordEvent", plain[2], None)
    extended = acl.event()
    acl.aclrtRecordEvent(extended, None)
    acl.aclrtDestroyEvent(plain[0])
    acl.aclrtRecordEvent(plain[2], None)
    acl.aclrtSynchronizeDevice()
    acl.aclrtResetEvent(plain[2], None)
    acl.aclrtRecordEvent(acl.new("aclrtCreateEventWithFlag", SYNC), None)
    # Old and new queries answer with opposite numbers.
    acl.aclrtSynchronizeDevice()
    assert acl.number("aclrtQueryEvent", plain[1]) == 0
    assert acl.number("aclrtQueryEventStatus", plain[1]) == COMPLETE


@program(STREAMS="3")
def streams_end(acl: Acl) -> None:
    acl.start()
    streams = [acl.stream() for _ in range(3)]
    out = ctypes.byref(ctypes.c_void_p())
    acl.refused(207008, "aclrtCreateStream", out)
    acl.aclrtDestroyStream(streams.pop())
    # A graph has streams of its own.
    acl.aclmdlRICaptureBegin(streams[0], GLOBAL)
    model = acl.new_last("aclmdlRICaptureEnd", streams[0])
    acl.refused(207008, "aclrtCreateStream", out)
    acl.aclmdlRICaptureBegin(streams[0], GLOBAL)
    acl.refused(207008, "aclmdlRICaptureEnd", streams[0], out)
    acl.aclmdlRIDestroy(model)
    acl.stream()
    assert acl.live("streams") == 3


@program()
def properties_of_streams(acl: Acl) -> None:
    acl.start()
    least, greatest = ctypes.c_int32(), ctypes.c_int32()
    acl.aclrtDeviceGetStreamPriorityRange(ctypes.byref(least), ctypes.byref(greatest))
    assert (least.value, greatest.value) == (7, 0)
    stream = acl.new("aclrtCreateStreamWithConfig", 5, 3)
    assert acl.number("aclrtStreamGetPriority", stream) == 5
    assert acl.number("aclrtStreamGetFlags", stream) == 3
    assert acl.number("aclrtStreamGetId", stream) != acl.number("aclrtStreamGetId", acl.stream())


# Faults.


@program(FAULT="aclrtMemsetAsync=2")
def a_stream_goes_on_after_a_fault(acl: Acl) -> None:
    acl.start()
    stream, block, event = acl.stream(), acl.malloc(4), acl.event()
    for value in (1, 2, 3):
        acl.aclrtMemsetAsync(block + value, 3, value, 1, stream)
    acl.aclrtRecordEvent(event, stream)
    acl.refused(507015, "aclrtSynchronizeEvent", event)
    acl.refused(507015, "aclrtSynchronizeStream", stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.read(block, 4) == b"\xff\x01\xff\x03"


@program(FAULT="aclrtMemsetAsync=2:507035")
def a_stream_stops_after_a_fault(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc(4)
    acl.aclrtSetStreamFailureMode(stream, STOP)
    with acl.held(stream):
        for value in (1, 2, 3):
            acl.aclrtMemsetAsync(block + value, 3, value, 1, stream)
    acl.refused(507035, "aclrtSynchronizeStream", stream)
    acl.refused(507035, "aclrtMemsetAsync", block, 4, 0, 4, stream)
    acl.refused(507035, "aclrtSynchronizeStream", stream)
    assert acl.read(block, 4) == b"\xff\x01\xff\xff"
    # Others go on.
    acl.aclrtMemsetAsync(block, 4, 0, 4, None)
    acl.aclrtSynchronizeStream(None)


@program(FAULT="aclrtMalloc=2:207018,aclrtMemsetAsync=1:507010")
def calls_fail_and_the_device_is_lost(acl: Acl) -> None:
    acl.start()
    block = acl.malloc()
    acl.refused(207018, "aclrtMalloc", ctypes.byref(ctypes.c_void_p()), 64, 0)
    acl.aclrtMemsetAsync(block, 64, 0, 64, None)
    acl.refused(507010, "aclrtSynchronizeStream", None)
    acl.refused(507010, "aclrtFree", block)
    assert acl.number("aclrtQueryDeviceStatus", 0) == 1
    acl.aclrtSetDevice(1)
    acl.aclrtFree(acl.malloc())


@program()
def a_kernel_fails(acl: Acl) -> None:
    acl.start()
    stream = acl.stream()
    acl.simulated_ascend_run(stream, acl.kernel(lambda: 507018), None)
    acl.refused(507018, "aclrtSynchronizeDevice")


@program()
def work_is_aborted(acl: Acl) -> None:
    acl.start()
    stream, block = acl.stream(), acl.malloc(4)
    with acl.held(stream):
        acl.aclrtMemsetAsync(block, 4, 1, 4, stream)
        acl.aclrtStreamAbort(stream)
    acl.refused(107023, "aclrtSynchronizeStream", stream)
    assert acl.read(block, 4) == b"\xff" * 4


# Host functions.


@program()
def callbacks_run_in_the_thread_that_asks(acl: Acl) -> None:
    acl.start()
    stream, events, block = acl.stream(), list[str](), acl.malloc(4)
    ready, end = threading.Event(), threading.Event()

    def reporter() -> None:
        ready.set()
        while not end.is_set():
            acl.code("aclrtProcessReport", 20)

    thread = threading.Thread(target=reporter)
    thread.start()
    ready.wait()
    acl.aclrtSubscribeReport(thread.ident, stream)

    def function() -> None:
        events.append("reported" if threading.get_ident() == thread.ident else "elsewhere")

    for _ in range(3):
        acl.aclrtLaunchCallback(acl.function(function), None, 1, stream)
    acl.aclrtMemsetAsync(block, 4, 0, 4, stream)
    acl.aclrtSynchronizeStream(stream)
    assert events == ["reported"] * 3
    acl.aclrtUnSubscribeReport(thread.ident, stream)
    end.set()
    thread.join()
    acl.aclrtDestroyStream(stream)


@program()
def host_functions_are_in_the_order_of_the_stream(acl: Acl) -> None:
    acl.start()
    stream, pinned, block, seen = acl.stream(), acl.pinned(1), acl.malloc(1), list[bytes]()
    for value in range(3):
        acl.aclrtMemsetAsync(block, 1, value, 1, stream)
        acl.aclrtMemcpyAsync(pinned, 1, block, 1, D2H, stream)
        acl.aclrtLaunchHostFunc(
            stream, acl.function(lambda: seen.append(ctypes.string_at(pinned, 1))), None
        )
    acl.aclrtSynchronizeStream(stream)
    assert seen == [b"\0", b"\1", b"\2"]
    # The thread asks before it is subscribed, and when there is nothing.
    acl.refused(107012, "aclrtProcessReport", 1)
    acl.aclrtSubscribeReport(threading.get_ident(), stream)
    acl.refused(107019, "aclrtProcessReport", 1)
    acl.aclrtUnSubscribeReport(threading.get_ident(), stream)


# Captures.


@program()
def a_graph_runs_when_it_is_executed(acl: Acl) -> None:
    acl.start()
    stream, block, status, model = acl.stream(), acl.malloc(4), ctypes.c_int(), ctypes.c_void_p()
    acl.aclrtMemset(block, 4, 0, 4)
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.aclrtMemsetAsync(block, 4, 1, 4, stream)
    acl.aclmdlRICaptureGetInfo(stream, ctypes.byref(status), ctypes.byref(model))
    assert (status.value, model.value is None) == (1, False)
    assert acl.new_last("aclmdlRICaptureEnd", stream) == model.value
    acl.aclmdlRICaptureGetInfo(stream, ctypes.byref(status), None)
    assert status.value == 0
    assert acl.read(block, 4) == b"\0" * 4
    acl.aclmdlRIExecuteAsync(model, stream)
    acl.aclrtSynchronizeStream(stream)
    assert acl.read(block, 4) == b"\1" * 4
    acl.aclmdlRIDestroy(model)
    assert acl.live("models") == 0


@program()
def a_graph_keeps_the_order_of_its_streams(acl: Acl) -> None:
    acl.start()
    stream, side, event = acl.stream(), acl.stream(), acl.event()
    order: list[str] = []

    def note(name: str, on: int) -> None:
        acl.aclrtLaunchHostFunc(on, acl.function(lambda: order.append(name)), None)

    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    note("first", stream)
    acl.aclrtRecordEvent(event, stream)
    acl.aclrtStreamWaitEvent(side, event)
    note("side", side)
    note("main", stream)
    acl.aclrtRecordEvent(event, side)
    acl.aclrtStreamWaitEvent(stream, event)
    note("last", stream)
    model = acl.new_last("aclmdlRICaptureEnd", stream)
    seen = set()
    for _ in range(50):
        order.clear()
        acl.aclmdlRIExecuteAsync(model, side)
        acl.aclrtSynchronizeStream(side)
        seen.add(tuple(order))
    # What is not ordered comes in either order.
    assert seen == {("first", "side", "main", "last"), ("first", "main", "side", "last")}


@program()
def a_thread_is_exempt_from_a_capture(acl: Acl) -> None:
    acl.start()
    stream, block, mode = acl.stream(), acl.malloc(), ctypes.c_int(RELAXED)
    acl.aclmdlRICaptureBegin(stream, GLOBAL)
    acl.aclmdlRICaptureThreadExchangeMode(ctypes.byref(mode))
    assert mode.value == GLOBAL
    acl.aclrtMemset(block, 4, 0, 4)
    acl.aclmdlRICaptureThreadExchangeMode(ctypes.byref(mode))
    assert mode.value == RELAXED
    acl.aclmdlRIDestroy(acl.new_last("aclmdlRICaptureEnd", stream))


# Other processes.


@program()
def memory_of_another_process(acl: Acl) -> None:
    with importer(acl) as child:
        block = acl.malloc()
        acl.aclrtMemset(block, 256, 0, 256)
        child.send(export(acl, block))
        assert child.recv() == 0
        child.send("fill")
        assert child.recv() == 0
        assert acl.read(block, 256) == b"\7" * 256
        acl.aclrtFree(block)
