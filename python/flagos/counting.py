"""Calls that an adapter counts, beside those that the core counts in the operators' slots.

A framework calls Python implementations by itself, and the core sees only the calls that they decline.
:func:`flagos.counters` has both.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Source(Protocol):
    """A source of counts: a module or an object."""

    def calls(self) -> Mapping[str, int]:
        """Operator → the calls that no slot has."""

    def reset_calls(self) -> None:
        """Sets them to zero."""


_sources: list[Source] = []


def join(source: Source) -> None:
    """Adds the calls of ``source`` to the counters from now on."""
    _sources.append(source)


def add_to(counted: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """The counters with the calls of every source."""
    for source in _sources:
        for op, calls in source.calls().items():
            counted.setdefault(op, {"calls": 0, "fallbacks": 0})["calls"] += calls
    return counted


def reset() -> None:
    """Sets the counts of every source to zero."""
    for source in _sources:
        source.reset_calls()
