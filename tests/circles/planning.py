"""Which parts of the outer circle CI runs with a change.

Parts whose turn it is come first, so that each has run within some landings; then the parts that the change touches,
the nearest first, as long as there is time. The choice depends on the commit and on the record alone, not on how fast
a machine is, so that everybody who asks gets the same answer.
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


def _turns(table: Table, ages: Mapping[str, tuple[int, str]], commit: str) -> list[Part]:
    """The outer circle, beginning with parts that the next landing would be too late for, and then by lot.

    The lot is the commit's: without a record of landings the turns are at random, and not always the same.
    """

    def key(part: Part) -> tuple[bool, int, str]:
        age = ages.get(part.name, (NEVER, ""))[0]
        late = age >= table.landings
        lot = hashlib.sha256(f"{commit} {part.name}".encode()).hexdigest()
        return not late, -age if late else 0, lot

    return sorted(table.circle("outer"), key=key)


def plan(
    table: Table, files: Sequence[str] | None, ages: Mapping[str, tuple[int, str]], commit: str
) -> list[Choice]:
    """A choice for each part of the outer circle, those that run first.

    ``files`` are the paths that the change touches; None if they are not known, and then all parts are touched.
    """
    outer = table.circle("outer")
    share = sum(part.seconds for part in outer) / table.landings
    left = table.outer_seconds
    chosen: dict[str, Choice] = {}
    for part in _turns(table, ages, commit):
        if table.outer_seconds - left >= share:
            break
        if part.seconds <= left:
            chosen[part.name] = Choice(part, True, "its turn")
            left -= part.seconds
    touched = [p for p in outer if files is None or any(p.changed(files))]
    for part in sorted(touched, key=lambda part: _nearness(part, files or ())):
        if part.name in chosen:
            continue
        fits = part.seconds <= left
        left -= part.seconds if fits else 0
        reason = "touched" if fits else "touched, but there is no time: run it by hand"
        chosen[part.name] = Choice(part, fits, reason)
    for part in outer:
        chosen.setdefault(part.name, Choice(part, False, "not touched"))
    return sorted(chosen.values(), key=lambda choice: not choice.runs)
