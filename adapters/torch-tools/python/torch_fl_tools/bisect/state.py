"""The state of a search in a folder, written after every run, from which the search continues."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagos import whole_file
from flagos.cli.output import CommandError
from torch_fl_tools.bisect.findings import Outcome

_FORMAT = 1
_NAME = "search.json"
# What the outcome of a run may depend on, besides FLAGOS_*.
_PREFIXES = ("FLAGOS_", "TRITON_", "GEMS_", "FLAGGEMS_", "CUDA_", "ASCEND_", "TE_FL_")
_LARGEST = 64 << 20


def variables() -> dict[str, str]:
    """The variables that the routes and kernels of the program may depend on."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_PREFIXES) and name != "FLAGOS_BISECT"
    }


def fingerprint(
    command: list[str], check: Mapping[str, Any], plan: Mapping[str, Any]
) -> dict[str, Any]:
    """All that a search is about. Files that the command names are in it by their contents."""
    return {
        "command": command,
        "folder": os.getcwd(),
        "contents of files": {word: found for word in command[1:] if (found := _contents(word))},
        "check": check,
        "plan": plan["plan"],
        "versions": plan["versions"],
        "variables": variables(),
    }


def _contents(word: str) -> str | None:
    """The hash of a file; None for a word that names none, such as the text of a program (`python -c`)."""
    try:
        path = Path(word)
        if not path.is_file() or path.stat().st_size > _LARGEST:
            return None
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except (OSError, ValueError):  # longer than a name may be, not to be read, or with a NUL
        return None


@dataclass(frozen=True)
class Run:
    """A run of the program that ended."""

    key: str
    folder: Path
    outcome: Outcome
    seconds: float

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Run:
        """The run that a search wrote. Raises KeyError and TypeError for what is none."""
        key, folder, seconds = fields["key"], fields["folder"], fields["seconds"]
        whole = isinstance(key, str) and isinstance(folder, str)
        if not whole or not isinstance(seconds, (int, float)):
            raise TypeError("it is no run of a program")
        return cls(key, Path(folder), Outcome(**fields["outcome"]), seconds)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "key": self.key,
            "folder": str(self.folder),
            "outcome": self.outcome.as_dict(),
            "seconds": self.seconds,
        }


class State:
    """The folder of one search."""

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        self.folder = folder
        self._about = about
        self.runs: list[Run] = []

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Hold the folder. Raises CommandError if another search is in it, running or not."""
        if not (self.folder / _NAME).exists() and self._is_used():
            raise CommandError(
                f"{self.folder} exists, and is no state of `flagos bisect`",
                "name another folder with --state",
            )
        self._require_same()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CommandError(
                f"{self.folder} cannot be made: {error.strerror}",
                "name another folder with --state",
            ) from error
        with (self.folder / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                raise CommandError(
                    f"another `flagos bisect` is at work in {self.folder}",
                    "wait for it, or name another folder with --state",
                ) from error
            self._require_same()
            self._write()
            yield

    def _is_used(self) -> bool:
        return self.folder.exists() and (not self.folder.is_dir() or any(self.folder.iterdir()))

    def _require_same(self) -> None:
        path = self.folder / _NAME
        if not path.exists():
            return
        remedy = f"name another folder with --state, or remove {self.folder}"
        try:
            found = json.loads(path.read_text())
            about, runs = found["about"], found["runs"]
            known = found["format"] == _FORMAT
            if known:
                runs = _runs(about, runs)
        except (OSError, ValueError, KeyError, TypeError) as error:
            reason = f"{path} is broken ({type(error).__name__}: {error})"
            raise CommandError(reason, remedy) from error
        if not known:
            raise CommandError(f"{path} is of another version of `flagos bisect`", remedy)
        for name, value in self._about.items():
            if about.get(name) != value:
                raise CommandError(
                    f"{self.folder} is stale: {_changed(name, about.get(name), value)}", remedy
                )
        self.runs = runs

    def known(self, key: str) -> Run | None:
        """The last run of this key that ended."""
        return next(
            (run for run in reversed(self.runs) if run.key == key and run.folder.is_dir()), None
        )

    def new_folder(self) -> Path:
        """An empty folder for the next run."""
        path = (self.folder / "runs" / f"{len(self.runs) + 1:03}").absolute()
        shutil.rmtree(path, ignore_errors=True)  # of a run that was interrupted
        path.mkdir(parents=True)
        return path

    def add(self, run: Run) -> None:
        """Keep a run that ended."""
        self.runs.append(run)
        self._write()

    def _write(self) -> None:
        runs = [run.as_dict() for run in self.runs]
        contents = {"format": _FORMAT, "about": self._about, "runs": runs}
        whole_file.write(self.folder / _NAME, json.dumps(contents, indent=1) + "\n")


def _runs(about: Any, runs: Any) -> list[Run]:
    """The runs of a state. Raises TypeError unless this is what a search writes."""
    if not isinstance(about, dict):
        raise TypeError("`about` is no object")
    if not isinstance(runs, list):
        raise TypeError("`runs` is no list")
    found = []
    for number, run in enumerate(runs, 1):
        try:
            found.append(Run.read(run))
        except (KeyError, TypeError):
            raise TypeError(f"entry {number} of `runs` is no run of a program") from None
    return found


def _changed(name: str, before: Any, now: Any) -> str:
    """Describes how a search differs from the stored one."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                if name == "contents of files":
                    return f"{key} was changed since"
                return f"its {name} had {key}={before.get(key)!r}, and here it is {now.get(key)!r}"
    if name == "plan":
        return "the plan of operators is another one now"
    return f"its {name} is {before!r}, and here it is {now!r}"
