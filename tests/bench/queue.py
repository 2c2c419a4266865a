"""What a call costs its thread, with and without the thread that hands calls to the library: `make bench-ascend`.

    FLAGOS_VENDOR=ascend LD_LIBRARY_PATH=... python -m tests.bench.queue [--rounds N] [--bursts N] [--json]

Calls of one signature on 8×8 float32, in bursts that the queue has room for, the ways in turns of one process: the time
until the last call of a burst has returned, the processor's time of the calling thread for it, and the time until all
are handed over too. Prints nanoseconds per call; asserts nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import torch

from flagos import _core
from tests.bench import machine
from tests.bench.overhead import table
from tests.bench.timing import Measured, command

# Fewer than wait for the thread at most.
BURST = 500


Clock = Callable[[], int]


def burst(
    call: Callable[[], object], queued: bool, bursts: int, clock: Clock, whole: bool
) -> float:
    """Nanoseconds per call until the calls have returned, or, as a `whole`, until the library has them."""
    torch.ops.flagos.queue_want(queued)
    spent = 0
    for _ in range(bursts):
        torch.flagos.synchronize()
        start = clock()
        for _ in range(BURST):
            call()
        if whole:
            torch.ops.flagos.queue_flush()
        spent += clock() - start
    torch.flagos.synchronize()
    torch.ops.flagos.queue_want(False)
    return spent / (bursts * BURST)


def sides(bursts: int) -> dict[str, Callable[[], float]]:
    """Every way, in nanoseconds per call."""
    x, y = torch.ones(8, 8, device="flagos"), torch.ones(8, 8, device="flagos")
    weight, bias = torch.ones(8, device="flagos"), torch.zeros(8, device="flagos")
    calls: dict[str, Callable[[], object]] = {
        "add": lambda: torch.add(x, y),
        "mm": lambda: torch.mm(x, y),
        "layer_norm": lambda: torch.layer_norm(x, (8,), weight, bias),
    }
    ways: dict[str, tuple[Clock, bool]] = {
        "returned": (time.perf_counter_ns, False),
        "thread": (time.thread_time_ns, False),
        "handed over": (time.perf_counter_ns, True),
    }
    return {
        f"{name}, {way}, {'auto' if queued else 'off'}": partial(
            burst, call, queued, bursts, clock, whole
        )
        for name, call in calls.items()
        for way, (clock, whole) in ways.items()
        for queued in (False, True)
    }


def report(measured: Measured, bursts: int) -> str:
    """The ways as a table."""
    rows = []
    for name, spread in measured.spreads().items():
        off = measured.ratio(name, f"{name.rsplit(',', 1)[0]}, off")
        rows.append((name, spread.in_order(), "" if name.endswith("off") else off.shown()))
    head = (
        f"{machine.setting('flagos', 'torch')} Vendor {_core.vendor()}; {bursts} bursts of "
        f"{BURST} calls a round; least / median / greatest of the rounds."
    )
    return "\n".join([head, "", *table(rows, ("call", "ns", "of `off`"))])


if __name__ == "__main__":
    command(__doc__, sides, report, bursts=8)
