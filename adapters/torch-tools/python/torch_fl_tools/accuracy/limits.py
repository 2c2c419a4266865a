"""The limits of an output's measures, from native's own noise.

With N(k) the largest value of a measure among the runs of native kernels at the k-th call of the output, the limit at
call k is

    limit(k) = max(floor, f · max{N(j) : j ≤ max(k, 3)})

where f is the multiple M of `--multiple`, but 3·M for a single number (a loss, a perplexity, a score), whose noise in
a few runs may be small by accident, and M² for a KL divergence, which grows with the square of the logits' errors.
Noise is taken of the calls until k, because in training it grows with the steps: a late step's must not hide an early
error. It is taken of four calls at least, because the first may be close to each other by accident. A most likely
token may be another where native's distance to its second is at most twice the limit of the logits' largest error,
since both may move by as much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from torch_fl_tools.accuracy.results import MEASURES, Compared, Judged, Measured, Place

_AT_LEAST = 4  # calls whose noise is taken together
_NUMBERS = ("scalar", "perplexity", "score")
Key = tuple[str, str, str]


class Limits:
    """Native's noise, and what follows from it."""

    def __init__(self, multiple: float, runs: Iterable[Compared]) -> None:
        self._multiple = multiple
        self._noise: dict[Key, dict[int, float]] = defaultdict(dict)
        for run in runs:
            for one in run.measured:
                calls = self._noise[_key(one.place, one.measure)]
                calls[one.place.call] = max(calls.get(one.place.call, 0.0), one.value)
        self._largest = {key: _running(calls) for key, calls in self._noise.items()}

    def noise(self, place: Place, measure: str) -> float:
        """The largest noise that counts for a call."""
        last = max(place.call, _AT_LEAST - 1)
        found = 0.0
        for call, value in self._largest.get(_key(place, measure), []):
            if call > last:
                break
            found = value
        return found

    def judge(self, one: Measured) -> Judged:
        """A measure beside its limit."""
        noise = self.noise(one.place, one.measure)
        limit = max(one.floor, self._factor(one.measure) * noise)
        if one.measure == "margin":
            largest = self.noise(one.place, "largest")
            limit = max(one.floor, 2 * self._factor("largest") * largest)
        return Judged(one.measure, one.value, noise, limit, one.place)

    def _factor(self, measure: str) -> float:
        if measure.startswith("kl_"):
            return self._multiple**2
        return self._multiple * (3 if measure in _NUMBERS else 1)

    def judged(self, run: Compared) -> list[Judged]:
        """Every measure of a run."""
        return [self.judge(one) for one in run.measured]


def _key(place: Place, measure: str) -> Key:
    return place.process, place.output, measure


def _running(calls: dict[int, float]) -> list[tuple[int, float]]:
    """The largest value until each call."""
    found, largest = [], 0.0
    for call, value in sorted(calls.items()):
        largest = max(largest, value)
        found.append((call, largest))
    return found


def worst(judged: Iterable[Judged]) -> list[Judged]:
    """Of each measure the one that is nearest to its limit, or furthest beyond."""
    found: dict[str, Judged] = {}
    for one in judged:
        before = found.get(one.measure)
        if before is None or (one.ratio, one.value) > (before.ratio, before.value):
            found[one.measure] = one
    return [found[name] for name in MEASURES if name in found]


def first_beyond(judged: Iterable[Judged]) -> list[Judged]:
    """Of each output and measure the first call that is beyond its limit, in the order of the program."""
    found: dict[Key, Judged] = {}
    for one in judged:
        if one.beyond:
            found.setdefault(_key(one.place, one.measure), one)
    return list(found.values())
