"""Options of an engine that flagos does not serve. Each problem names the option, the reason and the remedy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """Something that will not work."""

    option: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}; {self.remedy}"


class Refusals:
    """What an adapter does with problems: it raises them, or a command collects them."""

    def __init__(self) -> None:
        self._collected: list[Problem] | None = None

    @contextmanager
    def collected(self) -> Iterator[list[Problem]]:
        """Inside, `report` adds to this list instead of raising."""
        self._collected = []
        try:
            yield self._collected
        finally:
            self._collected = None

    def report(self, problems: Iterable[Problem]) -> None:
        """Raises ValueError that lists the problems, if there are any."""
        found = list(problems)
        if self._collected is not None:
            self._collected.extend(found)
        elif found:
            listed = "\n".join(f"  {problem}" for problem in found)
            raise ValueError(f"this configuration does not work on flagos:\n{listed}")
