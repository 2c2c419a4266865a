"""The one way in which benchmarks measure: sides that are compared take turns, round by round.

A slow moment of the machine falls on every side of a round. So a comparison is the ratio of two sides in each
round: least, median and greatest. `Measured` has the numbers, their JSON and their lines for people.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import statistics
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Spread:
    """Least, middle and greatest of several measurements of one thing."""

    least: float
    median: float
    greatest: float

    @classmethod
    def of(cls, samples: Sequence[float]) -> Spread:
        """The spread of at least one sample."""
        return cls(min(samples), statistics.median(samples), max(samples))

    def shown(self, digits: int = 2) -> str:
        """`median (least to greatest)`."""
        numbers = (f"{x:.{digits}f}" for x in (self.median, self.least, self.greatest))
        return "{} ({} to {})".format(*numbers)

    def in_order(self) -> str:
        """`least / median / greatest`, in whole numbers."""
        return f"{self.least:.0f} / {self.median:.0f} / {self.greatest:.0f}"


@dataclass(frozen=True)
class Measured:
    """The measurements of each side, round by round. The first side is the reference of the others."""

    samples: Mapping[str, Sequence[float]]

    @property
    def reference(self) -> str:
        """The name of the first side."""
        return next(iter(self.samples))

    def spread(self, side: str) -> Spread:
        """The measurements of one side."""
        return Spread.of(self.samples[side])

    def spreads(self) -> dict[str, Spread]:
        """The measurements of every side."""
        return {side: self.spread(side) for side in self.samples}

    def ratio(self, side: str, over: str | None = None) -> Spread:
        """One side over another, the reference unless `over` names it, in each round."""
        others = self.samples[self.reference if over is None else over]
        return Spread.of([a / b for a, b in zip(self.samples[side], others, strict=True)])

    def to_json(self) -> dict[str, Any]:
        """`sides`: the spread of each; `ratios`: the spread of each but the reference over the reference."""
        others = [side for side in self.samples if side != self.reference]
        return {
            "sides": {side: asdict(spread) for side, spread in self.spreads().items()},
            "reference": self.reference,
            "ratios": {side: asdict(self.ratio(side)) for side in others},
        }


def measure(
    sides: Mapping[str, Callable[[], float]],
    rounds: int,
    warmup: int = 1,
    before: Callable[[], object] = lambda: None,
    collected: bool = True,
) -> Measured:
    """Calls each side once a round, starting with another one each time.

    A side returns its measurement; `before` is called before each. The first `warmup` rounds are not counted. With
    `collected` unset, Python's garbage collector rests meanwhile.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    with _collector(collected):
        for round_ in range(warmup + rounds):
            shift = round_ % len(names)
            for name in names[shift:] + names[:shift]:
                before()
                sample = sides[name]()
                if round_ >= warmup:
                    samples[name].append(sample)
    return Measured(samples)


@contextmanager
def _collector(runs: bool) -> Iterator[None]:
    gc.collect()
    if not runs:
        gc.disable()
    try:
        yield
    finally:
        gc.enable()


def nanoseconds_per_call(
    call: Callable[[], object], iterations: int, wait: Callable[[], object] = lambda: None
) -> float:
    """Mean time of one call, in nanoseconds, over a loop of `iterations`.

    `wait` is called before and after, outside of the time: where calls are submitted to a device, it waits for it.
    """
    repeated = range(iterations)
    wait()
    start = time.perf_counter_ns()
    for _ in repeated:
        call()
    spent = time.perf_counter_ns() - start
    wait()
    return spent / iterations


def seconds_of(work: Callable[[], object], wait: Callable[[], object] = lambda: None) -> float:
    """Wall time of `work`, until `wait` says that a device has finished it, in seconds."""
    wait()
    start = time.perf_counter()
    work()
    wait()
    return time.perf_counter() - start


def microseconds_per_replay(graph: Any) -> float:
    """Time the CUDA device needs for one replay of a captured graph, in microseconds."""
    import torch

    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


def seconds_of_command(command: Sequence[str], environment: Mapping[str, str]) -> float:
    """Wall time of one run of a command, in seconds. Raises CalledProcessError when it fails."""
    return seconds_of(
        lambda: subprocess.run(command, env=dict(environment), check=True, capture_output=True)
    )


def geometric_mean(ratios: Iterable[float]) -> float:
    """The mean for ratios: twice as slow and twice as fast cancel out."""
    return math.exp(statistics.fmean(math.log(ratio) for ratio in ratios))


def columns(rows: Iterable[Sequence[str]], header: Sequence[str]) -> Iterator[str]:
    """Lines of text for people; every column but the first is aligned right."""
    lines = [header, *rows]
    widths = [max(len(row[column]) for row in lines) for column in range(len(header))]
    for row in lines:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  ".join(cells).rstrip()


def lines(
    measured: Mapping[str, Measured],
    unit: str,
    what: str = "",
    scale: float = 1,
    digits: int = 1,
    spreads: bool = False,
) -> Iterator[str]:
    """A line for each measurement: every side, and the ratios to the first side, round by round.

    A side is shown by its median, or with `spreads` by least / median / greatest. `scale` turns what was measured
    into `unit`.
    """
    sides = list(dict.fromkeys(side for one in measured.values() for side in one.samples))
    reference = sides[0]

    def cell(one: Measured, side: str) -> str:
        if side not in one.samples:
            return ""
        spread = one.spread(side)
        shown = (spread.least, spread.median, spread.greatest) if spreads else (spread.median,)
        return " / ".join(f"{x * scale:.{digits}f}" for x in shown)

    def ratio(one: Measured, side: str) -> str:
        known = {side, reference} <= one.samples.keys()
        return one.ratio(side, reference).shown() if known else ""

    rows = [
        (name, *(cell(one, side) for side in sides), *(ratio(one, side) for side in sides[1:]))
        for name, one in measured.items()
    ]
    ratios = (f"{side} / {reference}" for side in sides[1:])
    yield from columns(rows, (what, *(f"{side} {unit}" for side in sides), *ratios))


def command(
    description: str | None,
    sides: Callable[[int], Mapping[str, Callable[[], float]]],
    report: Callable[[Measured, int], str],
    **of_a_round: int,
) -> None:
    """The command of a benchmark on one thread: measures `sides` and prints `report`, or JSON.

    `of_a_round` names what a round has, such as `iterations=5000`: both are called with that number or the given one.
    """
    import torch

    ((name, number),) = of_a_round.items()
    parser = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9, help="interleaved rounds (default: 9)")
    parser.add_argument(
        f"--{name}", type=int, default=number, help=f"{name} of a round (default: {number})"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of the table")
    options = parser.parse_args()
    number = getattr(options, name)
    torch.set_num_threads(1)
    with torch.no_grad():
        measured = measure(sides(number), options.rounds)
    print(json.dumps(measured.to_json(), indent=2) if options.json else report(measured, number))
