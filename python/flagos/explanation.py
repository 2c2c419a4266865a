"""The plan: for every operator the implementation that runs, and the reasons."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

from flagos import _core, counting
from flagos.logs import connect
from flagos.plan_entry import Plan, PlanEntry

connect()


class Note(NamedTuple):
    """A fact of an adapter about an operator, beside the decision."""

    #: Its key in the data of the explanation.
    name: str
    #: The fact for programs.
    data: dict[str, Any]
    #: One line for readers.
    text: str


Annotate = Callable[[PlanEntry], Note | None]
"""A function of an adapter: its note on an operator, if it has one."""

_annotators: list[Annotate] = []


def join(annotate: Annotate) -> None:
    """Adds the notes of ``annotate`` to explanations from now on."""
    _annotators.append(annotate)


class Explanation:
    """The decision for one operator. ``print`` it, or read :attr:`data`."""

    def __init__(self, data: PlanEntry, text: str) -> None:
        #: Operator, winner, losers with their reasons, the deciding setting, and the notes of adapters by their names.
        self.data = data
        self._text = text

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"<Explanation\n{self._text}\n>"


def explain(op: str) -> Explanation:
    """Explains one operator. Raises :class:`flagos.FlagosError` with the nearest name if unknown."""
    entry, text = _core.explain(op), _core.explain_text(op)
    notes = [note for annotate in _annotators if (note := annotate(entry)) is not None]
    entry.update({note.name: note.data for note in notes})  # type: ignore[typeddict-item]
    return Explanation(entry, "\n".join([text, *(f"  {note.text}" for note in notes)]))


def plan() -> Plan:
    """The current plan as plain data, resolved first if something changed."""
    return _core.plan()


def operators(prefix: str | None = None) -> list[str]:
    """Names of the registered operators, sorted; for example those under ``"aten::"``."""
    return _core.ops(prefix)


def lock(path: str | os.PathLike[str] | None = None) -> str:
    """The plan as the text of a lock file, also written to ``path`` if one is given."""
    text = _core.plan_lock()
    if path is not None:
        # Opening a pipe without a reader raises instead of waiting.
        with open(path, "w", encoding="utf-8", opener=_without_waiting) as file:
            file.write(text)
    return text


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK, 0o666)


def check_lock(path: str | os.PathLike[str]) -> None:
    """Raises :class:`flagos.ConfigError` listing the differences if the plan is not the locked one."""
    _core.check_lock(os.fspath(path))


def counters() -> dict[str, dict[str, int]]:
    """Calls and fallbacks of every operator that was called, whatever served them."""
    return counting.add_to(_core.counters())


def reset_counters() -> None:
    """Sets every counter to zero."""
    _core.reset_counters()
    counting.reset()
