"""What was verified and measured of FlagGems' overloads, by chip.

Tables are JSON files, shipped with this package or written by `flagos verify` and `flagos tune` into
`$XDG_DATA_HOME/flagos`; a user's table beats the shipped one of the same chip and version.
"""

from __future__ import annotations

import ctypes
import datetime
import json
import os
import sys
from functools import cache
from pathlib import Path
from typing import Any

import torch

from torch_fl.flaggems import package

SHIPPED = Path(__file__).resolve().parents[1] / "verdicts"
_POLICY = "FLAGOS_FLAGGEMS"
POLICIES = ("auto", "verified", "all")
# A kernel that is slower than the native one by less than this is no loss.
AS_FAST = 1.05


def policy() -> str:
    """Which candidates serve by default: the value of FLAGOS_FLAGGEMS. Raises ValueError for another."""
    value = os.environ.get(_POLICY) or POLICIES[0]
    if value not in POLICIES:
        raise ValueError(f"{_POLICY}={value}: expected one of {', '.join(POLICIES)}")
    return value


def folder() -> Path:
    """Where this user's tables are."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "flagos"


@cache
def chip() -> str:
    """The product name of the first GPU, asked of NVIDIA's management library; empty when it does not say.

    CUDA is not initialised by asking.
    """
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return ""
    if library.nvmlInit_v2() != 0:
        return ""
    try:
        handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
        if library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) != 0:
            return ""
        if library.nvmlDeviceGetName(handle, text, len(text)) != 0:
            return ""
        return text.value.decode(errors="replace")
    finally:
        library.nvmlShutdown()


def file_name(kind: str, chip_name: str, version: str) -> str:
    """The name of a table: `verdicts` or `speed`."""
    return f"{kind}.{chip_name.replace(' ', '_')}.flaggems-{version}.json"


def keep(
    kind: str, overloads: dict[str, Any], out: Path | None, whole: bool, **about: Any
) -> dict[str, Any]:
    """The table of this chip, written to `out`, or where the plan reads it if it is the `whole`.

    `about` says how it was made, beside the chip, the date and the versions.
    """
    table = {
        "chip": chip(),
        "date": datetime.date.today().isoformat(),
        "flaggems": package.version(),
        "torch": torch.__version__,
        **about,
        "overloads": overloads,
    }
    path = out
    if path is None and whole:
        path = folder() / file_name(kind, chip(), package.version())
    if path is None:
        print("this is only a part: the table was not kept (--out keeps it)", file=sys.stderr)
        return table
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(table, indent=1, sort_keys=True) + "\n")
    print(f"wrote {path}", file=sys.stderr)
    return table


@cache
def _table(kind: str) -> dict[str, Any]:
    name = file_name(kind, chip(), package.version())
    for path in (folder() / name, SHIPPED / name):
        if path.is_file():
            table: dict[str, Any] = json.loads(path.read_text())
            return table
    return {}


def verdicts() -> dict[str, dict[str, Any]]:
    """For each overload: `verdict` (STRICT, BASIC, FAILED, UNTESTED), `cases`, and `first`, the first that failed."""
    found: dict[str, dict[str, Any]] = _table("verdicts").get("overloads", {})
    return found


def speed() -> dict[str, dict[str, float]]:
    """For each overload: the time of FlagGems over that of the native kernel, by class of shapes."""
    found: dict[str, dict[str, float]] = _table("speed").get("overloads", {})
    return found


def not_by_default(overload: str) -> str | None:
    """Why the default order does not take it; None when it does."""
    wanted = policy()
    known = verdicts().get(overload)
    where = chip() or "this chip"
    if known is not None and known["verdict"] == "FAILED":
        return f"verified to be wrong on {where}: {known['first']}"
    if wanted == "all":
        return None
    if known is None:
        return f"not verified on {where}: run `flagos verify`, or set {_POLICY}=all"
    if known["verdict"] != "STRICT":
        return (
            f"verified {known['verdict']} on {where}: {known.get('first') or 'no case reached it'}"
        )
    if wanted == "verified":
        return None
    measured = speed().get(overload)
    if not measured:
        return f"its speed is not known on {where}: run `flagos tune`, or set {_POLICY}=verified"
    slow = {shape: ratio for shape, ratio in measured.items() if ratio > AS_FAST}
    if slow:
        shape, ratio = max(slow.items(), key=lambda item: item[1])
        return f"measured slower than the native kernel on {where}: {ratio:.2f} times for {shape} shapes"
    return None
