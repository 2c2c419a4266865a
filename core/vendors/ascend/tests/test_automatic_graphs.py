"""Automatic graphs over CANN's captures: what repeats is launched by graphs, with the same bits."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import nn

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from core.vendors.ascend.tests import simulator

pytestmark = pytest.mark.ascend

TURNS = 40
Step = Callable[[int], torch.Tensor]


def training() -> Step:
    """A step of a small perceptron with AdamW. Its operators have workspaces of CANN's."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)).to(
        "flagos"
    )
    steps = torch.optim.AdamW(net.parameters(), lr=1e-2)
    batches = torch.randn(8, 12, 16)
    wanted = torch.arange(12).remainder(8)

    def step(turn: int) -> torch.Tensor:
        loss = nn.functional.cross_entropy(net(batches[turn % 8].to("flagos")), wanted.to("flagos"))
        steps.zero_grad()
        loss.backward()
        steps.step()
        return loss.detach()

    return step


def kept() -> Step:
    """The same, with tensors that live on for some turns and others that take the memory that is given back."""
    step, losses = training(), []

    def last(turn: int) -> torch.Tensor:
        losses.append(step(turn))
        noise = [torch.full((1 << turn % 12,), float("nan"), device="flagos") for _ in range(8)]
        del noise
        return torch.stack(losses[-5:]).sum()

    return last


def run(make: Callable[[], Step], *, auto: bool) -> list[torch.Tensor]:
    step = make()
    with torch.flagos.graphs.auto(auto):
        results = [step(turn) for turn in range(TURNS)]
    return [result.cpu() for result in results]


def counted(work: Callable[[], object]) -> dict[str, int]:
    """What automatic graphs did meanwhile."""
    before = torch.flagos.graphs.counts()
    work()
    after = torch.flagos.graphs.counts()
    return {key: count - before.get(key, 0) for key, count in after.items()}


@contextmanager
def broken(fault: int) -> Iterator[None]:
    torch.ops.flagos.graphs_inject(fault)
    try:
        yield
    finally:
        torch.ops.flagos.graphs_inject(0)


@pytest.mark.parametrize("make", [training, kept])
def test_training_has_the_same_bits(make: Callable[[], Step]) -> None:
    expected = run(make, auto=False)
    given: list[torch.Tensor] = []
    launched = simulator.calls("aclmdlRIExecuteAsync")
    did = counted(lambda: given.extend(run(make, auto=True)))
    assert all(map(torch.equal, given, expected))
    assert did["followed"] > 0.4 * did["calls"]
    assert simulator.calls("aclmdlRIExecuteAsync") - launched == did["launches of graphs"] > TURNS


@pytest.mark.parametrize("fault", [1, 2], ids=["launched late", "given twice"])
def test_broken_graphs_are_seen(fault: int) -> None:
    expected = run(kept, auto=False)
    with broken(fault):
        given = run(kept, auto=True)
    assert not all(map(torch.equal, given, expected))


def test_a_graph_queues_its_calls_at_once() -> None:
    """The runtime is asked for one launch in the place of those of a chunk."""
    x = torch.arange(64.0, device="flagos")

    def turn() -> torch.Tensor:
        y = x
        for _ in range(40):
            y = y * 0.5 + 1
        return y

    with torch.flagos.graphs.auto():
        for _ in range(20):
            turn()
        names = ("aclmdlRIExecuteAsync", "aclnnMuls", "aclnnMul", "aclnnAdds", "aclnnAdd")
        before = {name: simulator.calls(name) for name in names}
        result = turn()
        made = {name: simulator.calls(name) - before[name] for name in names}
        assert result[0].item() == 2.0
    # How the run is cut into chunks depends on what was followed before.
    assert made["aclmdlRIExecuteAsync"] >= 1
    assert sum(made.values()) <= 20, "of 80 calls"


def test_what_the_cpu_serves_is_between_graphs() -> None:
    x = torch.linspace(-0.5, 0.5, 64, dtype=torch.float64).to("flagos")

    def turn() -> torch.Tensor:
        y = x
        for _ in range(20):
            y = y * 0.5
        y = y.erfinv()  # CANN has none of this dtype
        for _ in range(20):
            y = y * 0.5 + 1
        return y

    expected = turn().cpu()
    results: list[torch.Tensor] = []
    with torch.flagos.graphs.auto():
        did = counted(lambda: results.extend(turn() for _ in range(TURNS)))
    assert did["followed"] > 0
    assert all(torch.equal(result.cpu(), expected) for result in results)
    assert "aten::erfinv" not in torch.flagos.graphs.followed_calls()


def test_another_thread_waits_for_the_device_meanwhile() -> None:
    """No capture is in its way, and its waits end no capture."""
    stop, waits = threading.Event(), []

    def wait() -> None:
        while not stop.is_set():
            torch.flagos.synchronize()
            waits.append(None)

    expected = run(training, auto=False)
    thread = threading.Thread(target=wait)
    thread.start()
    try:
        given = run(training, auto=True)
    finally:
        stop.set()
        thread.join()
    assert waits
    assert all(map(torch.equal, given, expected))


def test_the_memory_of_graphs_goes_back() -> None:
    with torch.flagos.graphs.auto():
        step = training()
        first = [step(turn) for turn in range(TURNS)]
        assert simulator.live("models") > 0
        torch.flagos.empty_cache()
        torch.flagos.synchronize()
        assert simulator.live("models") == 0
        assert torch.flagos.graphs.counts()["bytes held"] == 0
        again = [step(turn) for turn in range(TURNS)]
    step = training()
    with torch.flagos.graphs.auto(False):
        expected = [step(turn) for turn in range(2 * TURNS)]
    assert torch.equal(torch.stack(first + again), torch.stack(expected))


def in_time(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to("cpu", non_blocking=True)


def written(tensor: torch.Tensor) -> torch.Tensor:
    tensor.copy_(torch.full(tensor.shape, -1).pin_memory(), non_blocking=True)
    return tensor


def resized(tensor: torch.Tensor) -> torch.Tensor:
    tensor.untyped_storage().resize_(2 * tensor.nbytes)
    return tensor


def without_graphs(tensor: torch.Tensor) -> torch.Tensor:
    with torch.flagos.graphs.auto(False):
        return tensor + 0


# What another stream does with a tensor, other than by operators that automatic graphs see.
UNSEEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "copy to the host": in_time,
    "copy from the host": written,
    "number": lambda tensor: torch.tensor(tensor[3].item()),
    "operator of the CPU": torch.special.i0e,
    "resized storage": resized,
    "graphs turned off": without_graphs,
    "index": lambda tensor: torch.arange(128.0).to("flagos")[tensor],
}


def used_elsewhere(
    use: Callable[[torch.Tensor], torch.Tensor], *, busy: bool
) -> list[torch.Tensor]:
    """Has another stream use what moves before or, while that stream is `busy`, behind the use."""
    x, other = torch.arange(4096, device="flagos"), torch.flagos.Stream()
    work, seen = torch.zeros(8, device="flagos"), []

    def step(turn: int) -> torch.Tensor:
        y = x
        for _ in range(40):
            y = y * 0 + turn
        return y

    def elsewhere(kept: torch.Tensor, ready: torch.flagos.Event) -> None:
        with torch.flagos.stream(other):
            other.wait_event(ready)
            for _ in range(60 if busy else 0):
                work.add_(1)
            seen.append(use(kept))

    torch.flagos.empty_cache()  # and the graphs that know what was lent
    for turn in range(20):
        step(turn % 3)
    for turn in range(5):
        for _ in range(3):
            step(turn)
            step(turn + 7)
        kept, ready = step(turn), torch.flagos.Event()
        ready.record()
        if busy:
            elsewhere(kept, ready)
        step(turn + 7)
        step(turn + 7)
        if not busy:
            elsewhere(kept, ready)
        other.synchronize()
        seen[-1] = seen[-1].cpu()
        torch.flagos.synchronize()
    return seen


def compare_uses() -> None:
    """Prints each use that sees something else with graphs; run where every call takes its time."""
    for name, use in UNSEEN.items():
        # Memory that is resized while another stream uses it is the program's own fault.
        for busy in (False, True) if use is not resized else (False,):
            expected = used_elsewhere(use, busy=busy)
            with torch.flagos.graphs.auto():
                given = used_elsewhere(use, busy=busy)
            if not all(map(torch.equal, given, expected)):
                print(name, "of a busy stream" if busy else "")


def test_another_stream_sees_what_moves() -> None:
    script = "from core.vendors.ascend.tests import test_automatic_graphs as t; t.compare_uses()"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "SIMULATED_ASCEND_DELAY_US": "50"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
