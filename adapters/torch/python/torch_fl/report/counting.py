"""Calls by operator and implementation, also where routes change while the program runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping

_LOCKED = re.compile(r'^"(.+)" = "(.+)"$', re.MULTILINE)

Counts = Mapping[str, Mapping[str, int]]


def winners(lock: str) -> dict[str, str]:
    """Operator → the implementation that serves it, of the text of a lock."""
    return dict(_LOCKED.findall(lock))


class Served:
    """Adds up calls. Those since the last plan belong to the implementations of that plan.

    What is counted between the program's last plan and its `reset_counters()` is lost.
    """

    def __init__(self) -> None:
        self._winners: dict[str, str] = {}
        self._before: dict[str, tuple[int, int]] = {}
        self._served: defaultdict[str, Counter[str]] = defaultdict(Counter)
        self._fallbacks: Counter[str] = Counter()

    def plan(self, counts: Counts, lock: str) -> None:
        """A plan came: `counts` until now are the earlier one's."""
        self.count(counts)
        self._winners = winners(lock)

    def count(self, counts: Counts) -> None:
        """The counters as they are now: `calls` and `fallbacks` of every operator."""
        for op, numbers in counts.items():
            calls, fallbacks = numbers["calls"], numbers["fallbacks"]
            calls_before, fallbacks_before = self._before.get(op, (0, 0))
            if calls < calls_before or fallbacks < fallbacks_before:  # the program has reset them
                calls_before = fallbacks_before = 0
            self._before[op] = (calls, fallbacks)
            fell = fallbacks - fallbacks_before
            self._fallbacks[op] += fell
            winner = self._winners.get(op, "not in the plan")
            if not winner.startswith("cpu.fallback"):
                calls -= fell  # what another implementation served in its place
            if calls > calls_before:
                self._served[op][winner] += calls - calls_before

    def told(self) -> dict[str, dict[str, object]]:
        """For each operator that was called: `served`, calls by implementation, and `fallbacks`."""
        called = sorted(
            {op for op, by in self._served.items() if by} | set(+self._fallbacks),
        )
        return {
            op: {"served": dict(self._served[op]), "fallbacks": self._fallbacks[op]}
            for op in called
        }
