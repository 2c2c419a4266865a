"""Records on disk: a first line about the record, then one line of JSON for each distinct call.

Compressed where the name ends with `.gz`.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from flagos import whole_file
from torch_fl_tools.records import facts
from torch_fl_tools.records.facts import BrokenRecord, Call

VERSION = 1
LARGEST = 256 << 20
"""Bytes of a record without compression. Those of whole models have less than one MiB."""
SHIPPED = Path(__file__).resolve().parent / "shipped"
"""The folder of the records of whole models that the package ships."""


def write(path: Path, calls: Iterable[Call], **about: Any) -> None:
    """Write a record, whole or not at all. `about` goes into its first line."""
    lines = [json.dumps({"flagos_record": VERSION, "torch": torch.__version__, **about})]
    lines += [json.dumps(facts.to_json(call), separators=(",", ":")) for call in calls]
    text = ("\n".join(lines) + "\n").encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text)


def read(path: Path) -> list[Call]:
    """The calls of a record. Raises BrokenRecord, which names the line, and OSError."""
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
                data = file.read(LARGEST + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise BrokenRecord(f"{path} is not whole: {error}") from None
    if len(data) > LARGEST:
        raise BrokenRecord(f"{path} has more than {LARGEST >> 20} MiB, more than any record")
    lines = data.decode(errors="replace").splitlines()
    try:
        head = _loaded(lines[0]) if lines else None
    except BrokenRecord as error:
        raise BrokenRecord(f"{path}, line 1: {error}") from None
    if not isinstance(head, dict) or "flagos_record" not in head:
        raise BrokenRecord(
            f"{path} is no record: `flagos record -o FILE -- python program.py` writes one"
        )
    if head["flagos_record"] != VERSION:
        version = head["flagos_record"]
        raise BrokenRecord(
            f"{path} is a record of version {version}, and this flagos reads {VERSION}: record it anew"
        )
    found = []
    for number, line in enumerate(lines[1:], 2):
        try:
            found.append(facts.from_json(_loaded(line)))
        except BrokenRecord as error:
            raise BrokenRecord(f"{path}, line {number}: {error}") from None
    return found


def _loaded(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError as error:
        raise BrokenRecord(f"it is no JSON ({error})") from None
    except RecursionError:
        raise BrokenRecord("it is no call: its lists lie too deep in each other") from None


def merged(calls: Iterable[Call]) -> list[Call]:
    """Distinct calls, with what they count together, in the order in which they came first."""
    found: dict[Any, Call] = {}
    for call in calls:
        known = found.get(key := facts.key(call))
        found[key] = call if known is None else replace(known, count=known.count + call.count)
    return list(found.values())


def shipped() -> list[Path]:
    """The records that the package ships."""
    return sorted(SHIPPED.glob("*.rec.gz"))
