"""Calls that a second thread hands to CANN: what a program sees is what it sees without that thread."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
import torch
from torch import nn

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from core.vendors.ascend.tests import simulator
from torch_fl.flagos import queue

pytestmark = pytest.mark.ascend

# What does not wait for the queue any more: see `FlagosApi::queues_inject`.
RECORD, COPY, FREE, OTHER = 1, 2, 4, 8
LATE_US = 400


@pytest.fixture
def late() -> Iterator[None]:
    """The queue is on, and its thread is late by a random time before each part."""
    queue.turn(True)
    torch.ops.flagos.queue_inject(LATE_US, 0)
    yield
    torch.ops.flagos.queue_inject(0, 0)
    queue.turn(False)


def run(script: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A program with the queue on, in a process of its own."""
    environment = {**os.environ, "FLAGOS_QUEUE": "auto", **variables}
    command = [sys.executable, "-c", script]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


def said(script: str, **variables: str) -> str:
    ended = run(script, **variables)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.mark.usefixtures("late")
def test_calls_keep_their_order() -> None:
    x, expected = torch.zeros(8, device="flagos"), 0.0
    for i in range(200):
        x.mul_(0.5).add_(i)
        expected = expected * 0.5 + i
    assert x.cpu().tolist() == pytest.approx([expected] * 8, rel=1e-6)


@pytest.mark.usefixtures("late")
def test_a_call_returns_before_it_is_handed_over() -> None:
    x = torch.ones(4, device="flagos")
    (x + 1).cpu()
    torch.ops.flagos.queue_inject(50_000, 0)
    before, began = queue.counts()["posted"], time.perf_counter()
    for _ in range(40):
        x = x + 1
    went_on = time.perf_counter() - began
    assert queue.counts()["posted"] - before == 40
    assert x.sum().item() == 4 * 41
    assert went_on < (time.perf_counter() - began) / 2


def between_streams(turns: int) -> int:
    """How many results were wrong of those that one stream reads of another behind an event."""
    one, other = torch.flagos.Stream(), torch.flagos.Stream()
    wrong = 0
    kept = []
    for i in range(turns):
        with torch.flagos.stream(one):
            x = torch.full((64,), float(i), device="flagos")
            y = x * 2 + 1
            event = torch.flagos.Event()
            event.record(one)
        with torch.flagos.stream(other):
            other.wait_event(event)
            kept.append(y)  # `record_stream` would wait for the queue
            z = y - 1
            wrong += int((z != 2 * i).any().item())
        other.synchronize()
    return wrong


@pytest.mark.usefixtures("late")
def test_an_event_stands_for_the_calls_before_it() -> None:
    assert between_streams(20) == 0


@pytest.mark.usefixtures("late")
def test_memory_that_two_streams_use_is_free_after_both() -> None:
    one, other = torch.flagos.Stream(), torch.flagos.Stream()
    for i in range(20):
        with torch.flagos.stream(one):
            x = torch.full((1024,), float(i), device="flagos")
            y = x + 1
            event = one.record_event()
        with torch.flagos.stream(other):
            other.wait_event(event)
            total = (y * 2).sum()
            y.record_stream(other)
            del x, y
        with torch.flagos.stream(one):
            torch.full((1024,), -1.0, device="flagos").mul_(3)
        other.synchronize()
        assert total.item() == 2048 * (i + 1)


@pytest.mark.usefixtures("late")
def test_copies_come_after_the_calls_before_them() -> None:
    pinned = torch.empty(16, pin_memory=True)
    for i in range(20):
        x = torch.full((16,), 1.0, device="flagos") * i
        assert x.cpu().tolist() == [i] * 16
        y = x + 1
        pinned.copy_(y, non_blocking=True)
        torch.flagos.synchronize()
        assert pinned.tolist() == [i + 1] * 16
        y.copy_(torch.full((16,), 3.0))
        assert (y * x).sum().item() == 48 * i


CONTROL = """
import torch
from core.vendors.ascend.tests import simulator
from core.vendors.ascend.tests.test_queue import between_streams, copied, freed
torch.ones(1, device="flagos")
torch.ops.flagos.queue_inject({late}, {unmindful})
print({program})
torch.ops.flagos.queue_inject(0, 0)
"""


def copied(turns: int) -> int:
    """How many copies within the device were wrong."""
    wrong = 0
    source = torch.zeros(1 << 10, device="flagos")
    to = torch.zeros(1 << 10, device="flagos")
    for i in range(turns):
        source.fill_(float(i))
        source.add_(1)
        to.copy_(source)
        torch.flagos.synchronize()
        wrong += int((to != i + 1).any().item())
    return wrong


def freed(turns: int) -> int:
    """How many misuses there are of memory that goes back to CANN while calls wait."""
    for i in range(turns):
        x = torch.full((1 << 20,), float(i), device="flagos")
        x.mul_(2).add_(1)
        del x
        torch.flagos.empty_cache()
    torch.ops.flagos.queue_inject(0, 0)
    try:
        torch.flagos.synchronize()
    except RuntimeError:
        return turns
    return len(simulator.misuses())


@pytest.mark.parametrize(
    ("program", "unmindful"),
    [
        pytest.param("between_streams(12)", RECORD, id="an event"),
        pytest.param("copied(12)", COPY, id="a copy", marks=pytest.mark.slow),
        pytest.param("freed(12)", FREE | OTHER, id="memory", marks=pytest.mark.slow),
    ],
)
def test_a_wait_that_is_missing_is_found(program: str, unmindful: int) -> None:
    right = CONTROL.format(late=3000, unmindful=0, program=program)
    assert said(right).split() == ["0"]
    wrong = CONTROL.format(late=3000, unmindful=unmindful, program=program)
    ended = run(wrong)
    assert ended.stdout.split() != ["0"], "the check does not find a missing wait"


@pytest.mark.usefixtures("late")
def test_memory_is_reused_in_order() -> None:
    """Blocks are free when a tensor ends, while the calls that use them still wait."""
    total = torch.zeros((), device="flagos")
    for i in range(100):
        x = torch.full((256,), float(i), device="flagos")
        total += (x * 2 - x).sum()
        del x
    assert total.item() == 256 * sum(range(100))


@pytest.mark.usefixtures("late")
def test_what_reads_back_waits() -> None:
    x = torch.zeros(32, device="flagos")
    for i in range(8):
        x[i * 3] = float(i + 1)
        assert x.nonzero().flatten().tolist() == [k * 3 for k in range(i + 1)]
        assert x.sum().item() == (i + 1) * (i + 2) / 2
        assert x[x > 0].tolist() == [k + 1 for k in range(i + 1)]


@pytest.mark.usefixtures("late")
def test_threads_share_a_stream_and_have_streams_of_their_own() -> None:
    results: dict[int, list[float]] = {}

    def work(number: int) -> None:
        stream = torch.flagos.Stream() if number % 2 else torch.flagos.current_stream()
        with torch.flagos.stream(stream):
            x = torch.zeros(4, device="flagos")
            for _ in range(50):
                x = x + number
            results[number] = x.cpu().tolist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {number: [50.0 * number] * 4 for number in range(6)}


@pytest.mark.usefixtures("late")
def test_a_graph_is_captured_and_replayed_among_calls_that_wait() -> None:
    layer = nn.Linear(16, 16).to("flagos")
    static = torch.randn(4, 16, device="flagos")
    with torch.no_grad():
        layer(static).relu_()
        for _ in range(3):
            static.mul_(0.5)
        graph = torch.flagos.Graph()
        posted = queue.counts()["posted"]
        with torch.flagos.graph(graph):
            result = layer(static).relu_()
        assert queue.counts()["posted"] == posted
        for i in range(5):
            static.fill_(i / 8).add_(0.25)
            graph.replay()
            doubled = result * 2
            expected = layer(torch.full((4, 16), i / 8 + 0.25, device="flagos")).relu_() * 2
            assert torch.equal(doubled.cpu(), expected.cpu())


def trained() -> list[float]:
    torch.manual_seed(0)
    x, y = torch.randn(16, 8), torch.randn(16, 2)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 2))
    model.to("flagos")
    x, y = x.to("flagos"), y.to("flagos")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [loss.item() for loss in losses]


def test_training_has_the_bits_that_it_has_without() -> None:
    without = trained()
    queue.turn(True)
    torch.ops.flagos.queue_inject(LATE_US, 0)
    try:
        posted = queue.counts()["posted"]
        assert trained() == without
        assert queue.counts()["posted"] > posted + 200
    finally:
        torch.ops.flagos.queue_inject(0, 0)
        queue.turn(False)


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize(
    "take",
    [
        pytest.param(lambda x: x.data_ptr(), id="data_ptr"),
        pytest.param(lambda x: x.__dlpack__(), id="DLPack"),
        pytest.param(lambda _: torch.flagos.current_stream().native_handle, id="a stream"),
    ],
)
def test_who_gets_an_address_gets_what_was_computed_there(take: object) -> None:
    with torch.flagos.stream(torch.flagos.Stream()):
        x = torch.zeros(8, device="flagos")
        for _ in range(3):
            x.mul_(2)
        torch.flagos.synchronize()
        before = simulator.calls("aclnnInplaceMuls")
        for _ in range(5):
            x.mul_(2)
        take(x)
        assert simulator.calls("aclnnInplaceMuls") - before == 5


@pytest.mark.usefixtures("late")
def test_a_stream_whose_handle_others_have_queues_nothing() -> None:
    stream = torch.flagos.Stream()
    with torch.flagos.stream(stream):
        x = torch.zeros(8, device="flagos")
        (x + 1).cpu()
        assert stream.native_handle
        before = queue.counts()["posted"]
        assert (x + 1).sum().item() == 8
        assert queue.counts()["posted"] == before


FAILS = "aclSetTensorAddr=1:361001"
FAILING = """
import threading
import torch
from torch_fl.flagos import queue

x, one = torch.ones(4).to("flagos"), torch.ones(4).to("flagos")
y = x * one
torch.flagos.synchronize()
kept = [y]


def fail():
    kept.append(x * one)  # another result than the executor was made with


def told(look):
    try:
        look()
    except RuntimeError as error:
        return type(error).__name__ + ": " + str(error).replace(chr(10), " ")
    return "nothing"
"""


def test_a_failure_is_told_at_the_next_call_with_the_operators_name() -> None:
    script = """
fail()
while (first := told(lambda: x + one)) == "nothing":
    pass  # what is queued before the failure is known is given up
print(first)
print(told(lambda: x + one), (x * one).tolist())
"""
    first, then = said(FAILING + script, SIMULATED_ASCEND_FAULT=FAILS).splitlines()
    assert first.startswith("RuntimeError: aten::mul.Tensor: aclSetTensorAddr")
    assert "361001" in first and "queued: by another thread, after the call" in first
    assert then == "nothing [1.0, 1.0, 1.0, 1.0]"


@pytest.mark.parametrize(
    "look",
    [
        "torch.flagos.synchronize",
        *(
            pytest.param(look, marks=pytest.mark.slow)
            for look in (
                "torch.flagos.current_stream().synchronize",
                "lambda: kept[-1].cpu()",
                "lambda: kept[-1].sum().item()",
                "lambda: kept[-1].nonzero()",
                "kept[-1].data_ptr",
                "lambda: torch.flagos.graph(torch.flagos.Graph()).__enter__()",
            )
        ),
    ],
)
def test_a_failure_is_told_by_who_waits(look: str) -> None:
    script = f"""
torch.ops.flagos.queue_inject(20000, 0)
fail()
print(told({look}))
print(told(torch.flagos.synchronize))
"""
    first, then = said(FAILING + script, SIMULATED_ASCEND_FAULT=FAILS).splitlines()
    assert first.startswith("RuntimeError: aten::mul.Tensor: aclSetTensorAddr"), first
    assert then == "nothing"


@pytest.mark.slow
def test_calls_behind_a_failure_are_given_up_and_their_threads_told() -> None:
    """What another thread queued behind computes on what was not written: it is told too, if it is not the first."""
    script = """
torch.ops.flagos.queue_inject(100_000, 0)
for _ in range(40):
    x.mul_(1)  # random delays of two seconds in all, longer than a loaded machine takes to start the thread
fail()
results = []
behind = threading.Event()
go_on = threading.Event()

def other():
    results.append(told(lambda: kept.append(kept[-1] + one)))
    behind.set()
    go_on.wait()
    results.append(told(lambda: kept[-1] + one))
    results.append(told(lambda: (x * one).tolist()))

thread = threading.Thread(target=other)
thread.start()
behind.wait()
print(told(torch.flagos.synchronize))
torch.ops.flagos.queue_inject(0, 0)
go_on.set()
thread.join()
print(*results, sep=chr(10))
print(told(torch.flagos.synchronize))
"""
    lines = said(FAILING + script, SIMULATED_ASCEND_FAULT=FAILS).splitlines()
    told = "RuntimeError: aten::mul.Tensor: aclSetTensorAddr"
    assert lines[0].startswith(told), lines
    assert lines[1] == "nothing" and lines[2].startswith(told), lines
    assert lines[3:] == ["nothing", "nothing"], lines


def test_the_end_of_a_process_waits_and_tells() -> None:
    script = """
import atexit
import torch
from core.vendors.ascend.tests import simulator
atexit.register(lambda: print(simulator.calls("aclnnInplaceMuls")))
x = torch.ones(4, device="flagos")
torch.ops.flagos.queue_inject(20000, 0)
for _ in range(10):
    x.mul_(2)
"""
    assert said(script) == "10\n"
    ended = run(
        FAILING + "torch.ops.flagos.queue_inject(20000, 0)\nfail()",
        SIMULATED_ASCEND_FAULT=FAILS,
    )
    assert "aten::mul.Tensor: aclSetTensorAddr" in ended.stderr


def test_a_forked_child_does_not_wait() -> None:
    script = """
import os
import torch
x = torch.ones(4, device="flagos")
torch.ops.flagos.queue_inject(20000, 0)
y = x
for _ in range(20):
    y = y + 1
child = os.fork()
if child == 0:
    try:
        y.sum().item()
    except RuntimeError as error:
        del y
        os._exit(7 if "fork" in str(error) else 8)
    os._exit(9)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), y.sum().item())
"""
    assert said(script) == "7 84.0\n"


@pytest.mark.slow
def test_where_it_is_turned_on() -> None:
    asks = (
        "import torch; torch.flagos.init(); from torch_fl.flagos import queue; print(queue.is_on())"
    )
    assert said(asks) == "True\n"
    assert said(asks, FLAGOS_QUEUE="off") == "False\n"
    refused = run(asks, FLAGOS_QUEUE="on")
    assert "`on` is neither `auto` nor `off`" in refused.stderr
    host = run(asks, FLAGOS_VENDOR="host")
    assert "no second thread can queue calls" in host.stderr and host.returncode != 0
