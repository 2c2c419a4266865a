"""The description of one run: what `flagos bisect` tells the processes of the program."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from torch_fl_tools.bisect import VARIABLE


@dataclass(frozen=True)
class Watch:
    """Which calls are looked at one by one."""

    ops: frozenset[str]
    compare: bool  # with the reference, on copies of the arguments
    save: int | None  # the number of the call whose arguments are written before it begins


@dataclass(frozen=True)
class Observer:
    """The tool that observes a process in place of marks: its name in the group `torch_fl.tools`, and its settings."""

    tool: str
    settings: dict[str, Any]


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
    observer: Observer | None  # in place of marks

    def write(self, path: Path) -> None:
        """Writes the description that `current` reads in the processes of the program."""
        watch = self.watch
        description = {
            "folder": str(self.folder),
            "keep": None if self.keep is None else sorted(self.keep),
            "reference": self.reference,
            "compare": None if self.compare is None else str(self.compare),
            "nan": self.nan,
            "rtol": self.rtol,
            "atol": self.atol,
            "seed": self.seed,
            "watch": watch
            and {"ops": sorted(watch.ops), "compare": watch.compare, "save": watch.save},
            "observer": self.observer and asdict(self.observer),
        }
        path.write_text(json.dumps(description, indent=1))


@cache
def current() -> Trial:
    """The run that this process belongs to. Raises ValueError if the variable names no description of one."""
    path = os.environ.get(VARIABLE, "")
    try:
        fields = json.loads(Path(path).read_text())
        watch, observer = fields["watch"], fields["observer"]
        return Trial(
            folder=Path(fields["folder"]),
            keep=None if fields["keep"] is None else frozenset(fields["keep"]),
            reference=fields["reference"],
            compare=None if fields["compare"] is None else Path(fields["compare"]),
            nan=fields["nan"],
            rtol=fields["rtol"],
            atol=fields["atol"],
            seed=fields["seed"],
            watch=watch and Watch(frozenset(watch["ops"]), watch["compare"], watch["save"]),
            observer=observer and Observer(**observer),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{VARIABLE}={path} names no run of `flagos bisect` ({type(error).__name__}: {error}), which alone sets "
            "this variable: unset it"
        ) from error
