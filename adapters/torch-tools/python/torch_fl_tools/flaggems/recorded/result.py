"""The results of verifying an overload by its recorded calls."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict

from torch_fl.flaggems.table_file import UNTESTED, Ranges


@dataclass(frozen=True, slots=True)
class Loss:
    """A call that cost a process."""

    call: str
    why: str
    by_flaggems: bool


class _Result(TypedDict):
    verdict: str
    first: str | None


class Result(_Result, total=False):
    """The verdict on an overload by its recorded calls, as `flagos verify --record --json` prints it."""

    calls: int  # how many were compared
    configurations: int  # how many of a kernel were tried at most
    declines: str  # the first call that FlagGems does not serve, with the reason
    only: list[str]  # conditions within which all calls were right
    sizes: Ranges  # in which all calls were right
    limited: bool  # whether calls beyond these sizes are wrong
    not_reached: bool  # whether time or memory was short
    seconds: float
    before: bool  # whether the verdict is from the table, and nothing has run


class Progress(Result, total=False):
    """A result in the making, with what only the supervising process needs."""

    wrong: str  # the first call that was wrong
    basic: str  # a call that was BASIC
    lost: Loss  # the call in which the device was lost
    short: bool  # whether there was no memory for a call


Results = dict[str, Result]
"""By overload."""


def nothing(why: str) -> Progress:
    """The result where no call was compared."""
    return {"verdict": UNTESTED, "calls": 0, "first": why}
