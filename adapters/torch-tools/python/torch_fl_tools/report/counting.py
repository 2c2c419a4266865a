"""Calls by operator and implementation, also where routes change while the program runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch_fl_tools.report import process_file

_LOCKED = re.compile(r'^"(.+)" = "(.+)"$', re.MULTILINE)

Counts = Mapping[str, Mapping[str, int]]


@dataclass
class _Operator:
    before: tuple[int, int, int] = (0, 0, 0)  # calls, fallbacks, calls by Python
    served: Counter[str] = field(default_factory=Counter)
    instead: int = 0
    fallbacks: int = 0


def winners(lock: str) -> dict[str, str]:
    """Operator → the implementation that serves it, of the text of a lock."""
    return dict(_LOCKED.findall(lock))


class Served:
    """Adds up calls. Those since the last plan belong to the implementations of that plan.

    What is counted between the program's last plan and its `reset_counters()` is lost.
    """

    def __init__(self) -> None:
        self._winners: dict[str, str] = {}
        self._operators: defaultdict[str, _Operator] = defaultdict(_Operator)

    def plan(self, counts: Counts, by_python: Mapping[str, int], lock: str) -> None:
        """A plan came: what is counted until now is the earlier one's."""
        self.count(counts, by_python)
        self._winners = winners(lock)

    def count(self, counts: Counts, by_python: Mapping[str, int]) -> None:
        """The counters as they are now: `calls` and `fallbacks` of every operator.

        `by_python` are the calls among them that functions served which are attached over native kernels: the others
        of such an operator reached the native kernel, because they were declined, or made by the function itself.
        """
        for op, numbers in counts.items():
            entry = self._operators[op]
            now = (numbers["calls"], numbers["fallbacks"], by_python.get(op, 0))
            new = [after - before for after, before in zip(now, entry.before, strict=True)]
            if min(new) < 0:  # the program has reset them
                new = list(now)
            entry.before = now
            calls, fell, python = new
            entry.fallbacks += fell
            winner = self._winners.get(op, "not in the plan")
            if winner.startswith("cpu.fallback"):
                instead = 0
            elif python:
                instead = calls - python
            else:
                instead = min(fell, calls)
            entry.instead += instead
            if calls > instead:
                entry.served[winner] += calls - instead

    def operators(self) -> dict[str, process_file.Served]:
        """For each operator that was called: `served`, calls by implementation, `instead`, `fallbacks`.

        `instead` are the calls that the next implementation served in place of the chosen one.
        """
        return {
            op: {
                "served": dict(entry.served),
                "instead": entry.instead,
                "fallbacks": entry.fallbacks,
            }
            for op, entry in sorted(self._operators.items())
            if entry.served or entry.instead or entry.fallbacks
        }
