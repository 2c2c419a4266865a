"""Known differences, each with its reason: the contents of ``expected.toml`` (``expected.cuda.toml``...).

The file of a reference holds for every device compared with it; ``--expected`` names those of a device, the last of
which decides.

Two kinds of entries. A ``[[tolerance]]`` says how an operator is compared where the reference is no
standard: results that are not deterministic on the reference itself or undefined by contract, and
facts (``ignore``: kinds of mismatches) that are an accident of how the reference computes them.
An ``[[expected]]`` names failures accepted for a stated reason; one that no longer fails is stale
and fails the run, so that the list only ever shrinks. Both need a reason.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from .databases import Case
from .observation import EXACT, Tolerance

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DEFAULT_PATH = Path(__file__).with_name("expected.toml")


def paths_for(device_type: str, more: Sequence[str] = ()) -> tuple[Path, ...]:
    """The file about comparisons with a reference device, and the caller's after it."""
    return (path_for(device_type), *map(Path, more))


def path_for(device_type: str) -> Path:
    """The file about comparisons with a reference device."""
    return (
        DEFAULT_PATH if device_type == "cpu" else DEFAULT_PATH.with_stem(f"expected.{device_type}")
    )


_COMMON_KEYS = {"database", "ops", "dtypes", "variants", "reason"}
_COMPARISONS = ("bits", "close", "metadata")


@dataclass(frozen=True)
class Entry:
    """The cases and variants an entry speaks about, as shell patterns."""

    database: str
    ops: tuple[str, ...]
    dtypes: tuple[str, ...]
    variants: tuple[str, ...]
    reason: str
    intermittent: bool = False

    def covers(self, case: Case, variant: str) -> bool:
        return (
            case.database == self.database
            and _matches(case.name, self.ops)
            and _matches(case.dtype, self.dtypes)
            and _matches(variant, self.variants)
        )

    def __str__(self) -> str:
        where = f"{self.database}:{'|'.join(self.ops)}[{'|'.join(self.dtypes)}]"
        return f"{where} {'|'.join(self.variants)}"


@dataclass(frozen=True)
class Expectations:
    """The parsed lists."""

    expected: tuple[Entry, ...] = ()
    tolerances: tuple[tuple[Entry, Tolerance], ...] = ()

    @classmethod
    def load(cls, *paths: Path) -> Expectations:
        """Reads files, of which later ones come after earlier ones; raises ValueError with the entry at fault."""
        read = []
        for path in paths or (DEFAULT_PATH,):
            with path.open("rb") as file:
                read.append(cls.parse(tomllib.load(file)))
        return cls(
            tuple(entry for one in read for entry in one.expected),
            tuple(entry for one in read for entry in one.tolerances),
        )

    @classmethod
    def parse(cls, document: dict[str, Any]) -> Expectations:
        unknown = document.keys() - {"expected", "tolerance"}
        if unknown:
            raise ValueError(f"expected.toml: unknown tables {sorted(unknown)}")
        expected = [_entry(table, {"intermittent"}) for table in document.get("expected", [])]
        tolerances = [_tolerance(table) for table in document.get("tolerance", [])]
        return cls(tuple(expected), tuple(tolerances))

    def tolerance(self, case: Case, variant: str) -> Tolerance:
        """How values of a variant are compared; the last entry that covers it decides."""
        for entry, tolerance in reversed(self.tolerances):
            if entry.covers(case, variant):
                return tolerance
        return EXACT

    def reason(self, case: Case, variant: str) -> str | None:
        """Why a variant may fail, or None where it must not."""
        for entry in self.expected:
            if entry.covers(case, variant):
                return entry.reason
        return None


def _tolerance(table: dict[str, Any]) -> tuple[Entry, Tolerance]:
    ignore = frozenset(_patterns(table.get("ignore", [])))
    compare = table.get("compare", "bits" if ignore else "close")
    if compare not in _COMPARISONS:
        raise ValueError(f"expected.toml: compare = {compare!r} is none of {_COMPARISONS}")
    entry = _entry(table, {"compare", "rtol", "atol", "ignore"})
    rtol, atol = float(table.get("rtol", 0)), float(table.get("atol", 0))
    if compare == "close" and rtol == atol == 0:
        raise ValueError(f"expected.toml: {entry}: compare = 'close' needs rtol or atol")
    return entry, Tolerance(compare, rtol, atol, ignore, entry.reason)


def _entry(table: dict[str, Any], more_keys: set[str]) -> Entry:
    unknown = table.keys() - _COMMON_KEYS - more_keys
    if unknown:
        raise ValueError(f"expected.toml: unknown keys {sorted(unknown)} in {table}")
    if not str(table.get("reason", "")).strip() or not table.get("ops"):
        raise ValueError(f"expected.toml: an entry needs ops and a reason: {table}")
    return Entry(
        database=table.get("database", "op"),
        ops=_patterns(table["ops"]),
        dtypes=_patterns(table.get("dtypes", ["*"])),
        variants=_patterns(table.get("variants", ["*"])),
        reason=" ".join(table["reason"].split()),
        intermittent=bool(table.get("intermittent", False)),
    )


def _patterns(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValueError(f"expected.toml: {value!r} is no list of strings")
    return tuple(value)


def _matches(text: str, patterns: tuple[str, ...]) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)
