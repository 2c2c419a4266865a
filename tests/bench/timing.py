"""Repeated measurement of things that are compared with each other.

Two sides are measured turn and turn about in one process, so that a slow moment of the machine
falls on both; a comparison is the ratio of their medians.
"""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


def interleaved(
    sides: Mapping[str, Callable[[], float]], rounds: int, warmup: int = 1
) -> dict[str, Spread]:
    """The spread of each side over the rounds of `interleaved_samples`."""
    samples = interleaved_samples(sides, rounds, warmup)
    return {name: Spread.of(values) for name, values in samples.items()}


def interleaved_samples(
    sides: Mapping[str, Callable[[], float]], rounds: int, warmup: int = 1
) -> dict[str, list[float]]:
    """Calls each side once a round, starting with another one each time.

    A side returns its measurement. The first `warmup` rounds are not counted.
    """
    samples: dict[str, list[float]] = {name: [] for name in sides}
    names = list(sides)
    for round_ in range(warmup + rounds):
        shift = round_ % len(names)
        for name in names[shift:] + names[:shift]:
            sample = sides[name]()
            if round_ >= warmup:
                samples[name].append(sample)
    return samples


def nanoseconds_per_call(call: Callable[[], object], iterations: int) -> float:
    """Mean time of one call, in nanoseconds, over a loop of `iterations`."""
    repeated = range(iterations)
    start = time.perf_counter_ns()
    for _ in repeated:
        call()
    return (time.perf_counter_ns() - start) / iterations


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
    start = time.perf_counter()
    subprocess.run(command, env=dict(environment), check=True, capture_output=True)
    return time.perf_counter() - start
