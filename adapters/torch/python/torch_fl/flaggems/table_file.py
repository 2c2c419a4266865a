"""The files with tables of verdicts and of speeds: their format, how they are read, and how they are written."""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypedDict

from flagos import whole_file

STRICT, BASIC, FAILED, UNTESTED = "STRICT", "BASIC", "FAILED", "UNTESTED"
VERDICTS = (STRICT, BASIC, FAILED, UNTESTED)

# Bytes of a table without compression. The shipped one of the H200 has less than one MiB.
_LARGEST = 64 << 20

Ranges = dict[str, dict[str, str]]
"""For each argument, the verified ranges of its elements, rows and columns (`sizes.to_table`)."""


class Times(TypedDict):
    """Medians of one call in microseconds, on the host and on the device: FlagGems', and the native kernel's."""

    host: list[float]
    device: list[float]


class ClassSpeed(TypedDict):
    """The measured calls of one class (`python_kernels.call_class`)."""

    number: str  # of the class, in hexadecimal digits
    calls: dict[str, Times]


Speed = dict[str, ClassSpeed]
"""The measured classes of an overload's calls, by their words."""


class Records(TypedDict):
    """The recorded calls that an overload was verified by."""

    digest: str
    verdict: str
    calls: int
    configurations: int


class _Verdict(TypedDict):
    verdict: str


class Verdict(_Verdict, total=False):
    """The entry of an overload in a table of verdicts."""

    plain: str  # the verdict on the database's own samples alone
    cases: int  # how many were compared
    first: str | None  # the first case that prevents STRICT, or the reason
    seconds: float
    replayed: int  # how many cases ended in replays
    not_replayed: list[str]  # reasons against replays
    declined: int  # how many cases have calls that FlagGems does not take
    declines: str  # the first of these, with what FlagGems says
    left_out: list[str]  # cases that the native kernel does not survive
    only: list[str]  # the conditions that the verdict is about; `first` failed outside
    inside: int  # how many cases were right and within the conditions
    outside: int  # how many cases were wrong
    within_all: str  # the first case that FAILED within all conditions
    sizes: Ranges  # in which the kernel was verified
    beyond: str  # the first call that is wrong beyond these sizes
    records: Records
    wrong_on: str  # the chip on which a recorded call FAILED
    not_reached: int  # forms and types that there was no time or memory for
    again: bool  # the overload was about to run again


class Table(TypedDict, total=False):
    """A file of verdicts or speeds. Further fields say how it was made."""

    chip: str
    date: str
    flaggems: str
    torch: str
    triton: str
    compiler: str | None
    samples: int | None
    samples_from: str
    overloads: dict[str, Any]


def read(path: Path, kind: str) -> Table | None:
    """The table in a file; None where there is no file. Raises RuntimeError for one that is broken."""
    try:
        found: Any = json.loads(_text(path))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise RuntimeError(f"it is no table ({type(error).__name__}: {error})") from error
    if not isinstance(found, dict) or not isinstance(found.get("overloads"), dict):
        raise RuntimeError("it is no table (it has no object `overloads`)")
    wrong_with = _wrong_with_verdict if kind == "verdicts" else _wrong_with_speed
    for name, entry in found["overloads"].items():
        wrong = wrong_with(entry) if isinstance(entry, dict) else "it is no object"
        if wrong is not None:
            raise RuntimeError(f"its entry {name!r} is broken: {wrong}")
    table: Table = found  # type: ignore[assignment]
    return table


def _text(path: Path) -> str:
    """What is in a file, without compression."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            data = file.read(_LARGEST + 1)
    if len(data) > _LARGEST:
        raise ValueError(f"more than {_LARGEST >> 20} MiB")
    return data.decode()


def _wrong_with_verdict(entry: Mapping[str, Any]) -> str | None:
    verdict = entry.get("verdict")
    if verdict not in VERDICTS:
        return f"`verdict` is {verdict!r}, and none of {', '.join(VERDICTS)}"
    if entry.get("plain", UNTESTED) not in VERDICTS:
        return f"`plain` is {entry['plain']!r}, and none of {', '.join(VERDICTS)}"
    if verdict == STRICT and type(entry.get("cases")) is not int:
        return f"`cases` is {entry.get('cases')!r}, and no whole number"
    if (verdict != STRICT or "only" in entry) and not isinstance(entry.get("first"), str):
        return f"`first` is {entry.get('first')!r}, and no string"
    for name in ("only", "not_replayed"):
        if name in entry and not _are_strings(entry[name]):
            return f"`{name}` is {entry[name]!r}, and no list of strings"
    if ("replayed" in entry or "not_replayed" in entry) and type(entry.get("replayed")) is not int:
        return f"`replayed` is {entry.get('replayed')!r}, and no whole number"
    verified = entry.get("sizes", {})
    ranges = verified.values() if isinstance(verified, dict) else [None]
    if not all(isinstance(one, dict) and _are_strings(list(one.values())) for one in ranges):
        return f"`sizes` is {str(verified)[:80]}, and no object with ranges for each argument"
    if "declines" in entry and "declined" not in entry:
        return "it has `declines`, and no `declined`"
    return None


def _wrong_with_speed(entry: Mapping[str, Any]) -> str | None:
    if not entry:
        return "it has no classes of calls"
    for words, one in entry.items():
        if not isinstance(one, dict) or not isinstance(one.get("calls"), dict) or not one["calls"]:
            return f"`{words}` is {str(one)[:80]}, and no class with measured `calls`"
        if re.fullmatch("[0-9a-f]{1,16}", str(one.get("number"))) is None:
            return f"`number` of `{words}` is {one.get('number')!r}, and no hexadecimal number"
        for call, times in one["calls"].items():
            if not isinstance(times, dict) or not all(
                _are_times(times.get(kind)) for kind in ("host", "device")
            ):
                return f"`{call}` is {str(times)[:80]}, and no times on the host and on the device"
    return None


def _are_times(value: Any) -> bool:
    """Whether it is FlagGems' time and the native kernel's."""
    if not isinstance(value, list) or len(value) != 2:
        return False
    return all(type(one) in (int, float) and 0 < one < float("inf") for one in value)


def _are_strings(value: Any) -> bool:
    return isinstance(value, list) and set(map(type, value)) <= {str}


def write(path: Path, table: Table) -> None:
    """Writes a table, whole or not at all; compressed where the name ends with `.gz`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = (json.dumps(table, indent=1, sort_keys=True) + "\n").encode()
    whole_file.write(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def partial(path: Path) -> Path:
    """The path of a table in the making, which stays after an interrupt."""
    return path.with_name(f"{path.name}.partial")
