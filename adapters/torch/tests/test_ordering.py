"""Ordering bugs show on the host: queued copies really run later, and waiting really orders them.

Each test runs in a process of its own with injected delays, so that a copy queued on a side stream is
still under way when the next operator runs.
"""

from __future__ import annotations

import os
import textwrap

import pytest

from adapters.torch.tests.launch import run_script

ROUNDS = 10

PRELUDE = f"""
import torch
side = torch.flagos.Stream()
def rounds(order):
    wrong = 0
    for i in range({ROUNDS}):
        source = torch.full((1000,), float(i + 1)).pin_memory()
        target = torch.zeros(1000, device="flagos")
        side.wait_stream(torch.flagos.current_stream())  # the zeros come first
        with torch.flagos.stream(side):
            target.copy_(source, non_blocking=True)
        order()
        wrong += target.sum().item() != 1000 * (i + 1)
        side.synchronize()
    return wrong
"""


def run_delayed(program: str, **environment: str) -> str:
    """Standard output of `program` after the prelude, with delays of up to 8 ms for queued work."""
    result = run_script(
        PRELUDE + textwrap.dedent(program),
        {
            **os.environ,
            "FLAGOS_HOST_DELAY_US": "8000",
            "FLAGOS_HOST_SEED": "7",
            **environment,
        },
    )
    return result.stdout.strip()


@pytest.mark.needs("faults")
def test_without_a_wait_the_race_shows():
    """Negative control: the same program without ordering reads stale data."""
    assert int(run_delayed("print(rounds(lambda: None))")) > 0


@pytest.mark.parametrize(
    "order",
    [
        "torch.flagos.current_stream().wait_stream(side)",
        "torch.flagos.current_stream().wait_event(side.record_event())",
        "side.synchronize()",
        "torch.flagos.synchronize()",
        "torch.accelerator.synchronize()",
        "side.record_event().synchronize()",
    ],
)
def test_waiting_orders_a_copy_before_its_reader(order):
    assert run_delayed(f"print(rounds(lambda: {order}))") == "0"


def test_work_on_one_stream_is_ordered_without_waiting():
    program = """
        wrong = 0
        for i in range(10):
            source = torch.full((1000,), float(i)).pin_memory()
            target = source.to("flagos", non_blocking=True)
            wrong += (target + 1).sum().item() != 1000 * (i + 1)
        print(wrong)
    """
    assert run_delayed(program) == "0"


@pytest.mark.parametrize(
    "view",
    [
        pytest.param("pinned", id="its owner's"),
        pytest.param("torch.from_numpy(pinned.numpy())", id="NumPy's"),
        pytest.param("torch.from_dlpack(pinned)", id="DLPack's"),
        pytest.param("torch.frombuffer(pinned.numpy(), dtype=torch.float32)", id="a buffer's"),
        pytest.param("pinned.untyped_storage().cpu() and pinned[:]", id="a view's"),
    ],
)
def test_pinned_memory_is_not_reused_while_a_copy_reads_it(view):
    program = f"""
        wrong = 0
        for i in range(10):
            target = torch.zeros(4096, device="flagos")
            pinned = torch.full((4096,), float(i)).pin_memory()
            source = {view}
            side.wait_stream(torch.flagos.current_stream())
            with torch.flagos.stream(side):
                target.copy_(source, non_blocking=True)
            del source, pinned
            torch.full((4096,), -1.0).pin_memory()  # would take the same memory
            side.synchronize()
            wrong += target.sum().item() != 4096 * i
        print(wrong)
    """
    assert run_delayed(program) == "0"


def test_record_stream_keeps_memory_until_the_other_stream_is_done():
    program = """
        wrong = 0
        for i in range(10):
            source = torch.full((4096,), float(i), device="flagos")
            back = torch.empty(4096).pin_memory()
            side.wait_stream(torch.flagos.current_stream())
            with torch.flagos.stream(side):
                back.copy_(source, non_blocking=True)
            source.record_stream(side)
            del source
            torch.full((4096,), -1.0, device="flagos")  # would take the same memory
            side.synchronize()
            wrong += back.sum().item() != 4096 * i
        print(wrong)
    """
    assert run_delayed(program) == "0"


@pytest.mark.host
@pytest.mark.parametrize(("record", "is_kept"), [("source.record_stream(far)", True), ("", False)])
def test_record_stream_waits_for_a_stream_of_another_device(record, is_kept):
    program = f"""
        kept = 0
        far = torch.flagos.Stream(device="flagos:1")
        for i in range(10):
            source = torch.full((4096,), float(i), device="flagos:0")
            there, back = torch.ones(4096, device="flagos:1"), torch.empty(4096).pin_memory()
            with torch.flagos.stream(far):
                back.copy_(there, non_blocking=True)
            {record}
            before = source.data_ptr()
            del source
            kept += torch.full((4096,), -1.0, device="flagos:0").data_ptr() != before
            far.synchronize()
        print(kept)
    """
    kept = int(run_delayed(program, FLAGOS_HOST_DEVICES="2"))
    assert kept >= 8 if is_kept else kept == 0


@pytest.mark.needs("faults")
def test_without_record_stream_memory_is_reused_too_early():
    """Negative control for the test above."""
    program = """
        wrong = 0
        for i in range(10):
            source = torch.full((4096,), float(i), device="flagos")
            back = torch.empty(4096).pin_memory()
            with torch.flagos.stream(side):
                back.copy_(source, non_blocking=True)
            del source
            torch.full((4096,), -1.0, device="flagos")
            side.synchronize()
            wrong += back.sum().item() != 4096 * i
        print(wrong)
    """
    assert int(run_delayed(program)) > 0


@pytest.mark.needs("faults")
def test_a_failed_copy_is_reported_when_its_stream_is_waited_for():
    program = """
        source = torch.ones(1000).pin_memory()
        target = torch.zeros(1000, device="flagos")
        with torch.flagos.stream(side):
            target.copy_(source, non_blocking=True)
        try:
            side.synchronize()
        except RuntimeError as error:
            print("injected" in str(error) or "fault" in str(error), error)
        print((torch.ones(2, device="flagos") + 1).sum().item())
    """
    lines = run_delayed(program, FLAGOS_HOST_FAULT="copy=1.0").splitlines()
    assert lines[0].startswith("True")
    assert lines[-1] == "4.0"  # the process goes on


@pytest.mark.needs("faults")
@pytest.mark.parametrize("side", [False, True], ids=["current stream", "side stream"])
def test_a_reader_of_a_failed_copy_is_told_once(side):
    program = f"""
        source = torch.ones(1000).pin_memory()
        silent = raised = 0
        for _ in range(60):
            target = torch.zeros(1000, device="flagos")
            stream = side if {side} else torch.flagos.current_stream()
            try:
                with torch.flagos.stream(stream):
                    target.copy_(source, non_blocking=True)
                if {side}:
                    torch.flagos.current_stream().wait_stream(stream)
                silent += target.sum().item() != 1000
            except RuntimeError:
                raised += 1
        print(silent, 0 < raised < 30)
    """
    assert run_delayed(program, FLAGOS_HOST_FAULT="copy=0.1", FLAGOS_HOST_DELAY_US="0") == "0 True"


@pytest.mark.host
def test_several_devices_copy_between_each_other():
    program = """
        a = torch.arange(10., device="flagos:0")
        b = a.to("flagos:1")
        assert b.device.index == 1 and torch.equal(a.cpu(), b.cpu())
        with torch.flagos.device(1):
            assert torch.zeros(1, device="flagos").device.index == 1
        try:
            a + b
        except RuntimeError as error:
            print("flagos:0" in str(error) and "flagos:1" in str(error))
    """
    assert run_delayed(program, FLAGOS_HOST_DEVICES="2") == "True"
