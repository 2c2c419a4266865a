"""The description of one run: what `flagos bisect` tells the processes of the program."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torch_fl_tools.bisect import VARIABLE


@dataclass(frozen=True)
class Watch:
    """Which calls are looked at one by one."""

    ops: frozenset[str]
    compare: bool  # with the reference, on copies of the arguments
    save: int | None  # the number of the call whose arguments are written before it begins


@dataclass(frozen=True)
class Trial:
    """One run."""

    folder: Path
    # The operators that keep the routes of the program. The others follow the reference. None: all keep theirs.
    keep: frozenset[str] | None
    reference: str  # native, cpu or cuda
    compare: Path | None  # the folder of the run whose marks are expected
    nan: bool  # whether NaN in a mark is a failure
    rtol: float | None
    atol: float | None
    seed: int
    watch: Watch | None


@cache
def current() -> Trial:
    """The run that this process belongs to. Raises ValueError if the variable names no description of one."""
    path = os.environ.get(VARIABLE, "")
    try:
        told = json.loads(Path(path).read_text())
        watch = told["watch"]
        return Trial(
            folder=Path(told["folder"]),
            keep=None if told["keep"] is None else frozenset(told["keep"]),
            reference=told["reference"],
            compare=None if told["compare"] is None else Path(told["compare"]),
            nan=told["nan"],
            rtol=told["rtol"],
            atol=told["atol"],
            seed=told["seed"],
            watch=watch and Watch(frozenset(watch["ops"]), watch["compare"], watch["save"]),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{VARIABLE}={path} names no run of `flagos bisect` ({type(error).__name__}: {error}), which alone sets "
            "this variable: unset it"
        ) from error
