"""Which parts of the outer circle CI runs with a change.

Parts that have waited for half of their landings come first; then those that the change touches, the nearest first;
then, by lot, others whose turn comes. The choice depends on the commit and on the record alone, not on how fast a
machine is, so that everybody who asks gets the same answer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.circles.parts import Part, Table

NEVER = 1 << 30


@dataclass(frozen=True)
class Choice:
    """A part, whether it runs, and the reason."""

    part: Part
    runs: bool
    reason: str


def _nearness(part: Part, files: Sequence[str]) -> tuple[bool, int, int]:
    """Sorts what is about changed files before what only uses them."""
    about, uses = part.changed(files)
    return about == 0, -about, -uses


def _lot(part: Part, commit: str) -> str:
    """The commit's: without a record of landings the turns are at random, and not always the same."""
    return hashlib.sha256(f"{commit} {part.name}".encode()).hexdigest()


def plan(
    table: Table, files: Sequence[str] | None, ages: Mapping[str, tuple[int, str]], commit: str
) -> list[Choice]:
    """A choice for each part of the outer circle, those that run first.

    ``files`` are the paths that the change touches; None if they are not known, and then all parts are touched.
    """
    outer = table.circle("outer")
    age = {part.name: ages.get(part.name, (NEVER, ""))[0] for part in outer}
    late = [part for part in outer if age[part.name] > table.landings // 2]
    late.sort(key=lambda part: (-age[part.name], _lot(part, commit)))
    touched = [part for part in outer if files is None or any(part.changed(files))]
    touched.sort(key=lambda part: _nearness(part, files or ()))
    others = sorted(outer, key=lambda part: _lot(part, commit))
    share = sum(part.seconds for part in outer) / table.landings
    chosen: dict[str, Choice] = {}
    spent = 0
    for parts, reason in ((late, "its turn"), (touched, "touched"), (others, "its turn")):
        for part in parts:
            if part.name in chosen or (parts is others and spent >= share):
                continue
            fits = spent + part.seconds <= table.outer_seconds
            if fits:
                chosen[part.name] = Choice(part, True, reason)
                spent += part.seconds
            elif parts is touched:
                untimely = "touched, but there is no time: run it by hand"
                chosen[part.name] = Choice(part, False, untimely)
    for part in outer:
        chosen.setdefault(part.name, Choice(part, False, "not touched"))
    return sorted(chosen.values(), key=lambda choice: not choice.runs)
