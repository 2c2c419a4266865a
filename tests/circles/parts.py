"""The table of parts: ``parts.toml`` as values."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
TABLE = "tests/circles/parts.toml"
_GLOBS = ("about", "uses", "slow")
Circle = Literal["inner", "outer", "by hand"]
CIRCLES: tuple[Circle, ...] = ("inner", "outer", "by hand")


@dataclass(frozen=True)
class Part:
    """A target of the Makefile, and the files whose change asks for it."""

    name: str
    circle: Circle
    seconds: int
    """Its wall time on two cores with everything built that `make setup-dev` builds."""
    about: tuple[str, ...] = ()
    """Globs of what it tests first of all: its own tests, and the product that only they test whole."""
    uses: tuple[str, ...] = ()
    """Globs of what else it depends on."""
    slow: tuple[str, ...] = ()
    """Globs of files whose tests with the mark `slow` it runs."""
    why: str = ""
    """For a part that is run by hand: why no circle has it."""

    def changed(self, files: Iterable[str]) -> tuple[int, int]:
        """How many of these files it is about, and how many of the others it uses."""
        files = list(files)
        about = sum(matches(file, self.about) for file in files)
        either = sum(matches(file, self.about + self.uses) for file in files)
        return about, either - about


@dataclass(frozen=True)
class Table:
    """All parts, and what needs none."""

    parts: tuple[Part, ...]
    outer_seconds: int
    """How long the parts of the outer circle may take that CI runs with a change: the sum of their seconds."""
    landings: int
    """Within how many landings each part of the outer circle has its turn."""
    unneeded: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Reason → globs of files that only the inner circle reads."""

    def circle(self, name: Circle) -> tuple[Part, ...]:
        """The parts of a circle, in the order of the table."""
        return tuple(part for part in self.parts if part.circle == name)

    def named(self, names: Sequence[str]) -> list[Part]:
        """The parts of these names. Raises ValueError for a name that is no part's."""
        known = {part.name: part for part in self.parts}
        for name in names:
            if name not in known:
                raise ValueError(f"{name} is no part; the parts are: {', '.join(known)}")
        return [known[name] for name in names]


@cache
def _pattern(glob: str) -> re.Pattern[str]:
    """``**`` stands for any path, ``*`` for a part of a name; a glob that ends with ``/`` for all that is below."""
    glob = glob + "**" if glob.endswith("/") else glob
    pieces = re.split(r"(\*\*/?|\*)", glob)
    meaning = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*"}
    return re.compile("".join(meaning.get(piece, re.escape(piece)) for piece in pieces))


def matches(file: str, globs: Iterable[str]) -> bool:
    """Whether a path, relative to the root, is meant by one of these globs."""
    return any(_pattern(glob).fullmatch(file) for glob in globs)


def parse(text: str) -> Table:
    """Reads the table. Raises ValueError for a key or a circle that it does not know."""
    document = tomllib.loads(text)
    groups: dict[str, list[str]] = document.get("files", {})

    def globs(entry: dict[str, Any], key: str) -> tuple[str, ...]:
        listed = entry.get(key, [])
        return tuple(glob for one in listed for glob in groups.get(one, [one]))

    parts = []
    for entry in document["part"]:
        unknown = entry.keys() - {"name", "circle", "seconds", *_GLOBS, "why"}
        if unknown or entry["circle"] not in CIRCLES:
            raise ValueError(f"part {entry['name']}: unknown {sorted(unknown) or entry['circle']}")
        parts.append(Part(**{**entry, **{key: globs(entry, key) for key in _GLOBS}}))
    return Table(
        parts=tuple(parts),
        unneeded={one["why"]: tuple(one["files"]) for one in document.get("unneeded", [])},
        **document["ci"],
    )


def table() -> Table:
    """The table of this checkout."""
    return parse((ROOT / TABLE).read_text(encoding="utf-8"))
