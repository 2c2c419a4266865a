"""Entries of the table of verdicts, by overload."""

from __future__ import annotations

from importlib.metadata import version as version_of
from typing import Any

from torch_fl.flaggems.table_file import FAILED, Verdict

Verdicts = dict[str, Verdict]
NO_TIME = "there was no time for it"


def is_cut(entry: Verdict) -> bool:
    """Whether a verdict is missing for lack of time."""
    late = entry["verdict"] != FAILED and entry.get("not_reached")
    return bool(late) or entry.get("first") == NO_TIME or "again" in entry


def about(samples: int | None) -> dict[str, Any]:
    """How a table is made, beside what all tables have."""
    return {"triton": version_of("triton"), "samples": samples}
