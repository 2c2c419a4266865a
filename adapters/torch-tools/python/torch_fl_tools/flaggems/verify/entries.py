"""Entries of the table of verdicts, by overload."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any

from torch_fl.flaggems.tables import FAILED, UNTESTED

Verdicts = dict[str, dict[str, Any]]
NO_TIME = "there was no time for it"
AGAIN = "again"  # marks an entry of an overload that was about to be run again


def untested(why: str) -> dict[str, Any]:
    return {"verdict": UNTESTED, "plain": UNTESTED, "cases": 0, "first": why}


def is_cut(entry: dict[str, Any]) -> bool:
    """Whether a verdict is missing for lack of time."""
    late = entry["verdict"] != FAILED and entry.get("not_reached")
    return bool(late) or entry.get("first") == NO_TIME or AGAIN in entry


def about(samples: int | None) -> dict[str, Any]:
    """How a table is made, beside what all tables have."""
    return {"triton": version_of("triton"), "samples": samples}
