"""One run of the program in a process group of its own, and its outcome."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path

from flagos.cli.output import CommandError
from flagos.processes.child import Child
from flagos.processes.ending import Ending
from torch_fl_tools.bisect import VARIABLE
from torch_fl_tools.bisect.findings import Outcome
from torch_fl_tools.bisect.trial import Trial

_LAST = 4000  # bytes of standard error that a reason is looked for in
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")


def run(
    command: Sequence[str],
    trial: Trial,
    *,
    environment: dict[str, str],
    timeout: float | None,
    expected: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run the command as `trial` says, with its output in the trial's folder.

    `expected` is the folder of the run whose marks are compared with. The run is ended at the first mark that is
    bad, after `timeout` seconds, and once `stop()` is true: the program, and all processes of its group.
    """
    folder = trial.folder
    description = folder / "trial.json"
    trial.write(description)
    variables = {
        **os.environ,
        "PYTHONHASHSEED": str(trial.seed),
        "PYTHONFAULTHANDLER": "1",
        **environment,
        VARIABLE: str(description),
    }
    marks = _Marks(folder)
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            child = Child(
                command, environment=variables, stdout=out, stderr=err, dies_with_parent=True
            )
        except OSError as error:
            raise CommandError(
                f"{command[0]} cannot be run: {error.strerror}",
                "name a program: flagos bisect -- python train.py",
            ) from error
        stopped: Outcome | None = None

        def interrupts() -> bool:
            nonlocal stopped
            stopped = Outcome("stopped") if stop() else marks.bad()
            return stopped is not None

        with child:
            ending = child.wait(timeout, stop=interrupts)
    if stopped is not None:
        return stopped
    if ending is not None and ending.deadline is not None:
        return Outcome("timeout", f"did not end in {ending.deadline:g} s")
    return marks.bad() or _failure(ending, folder) or marks.missing(expected)


def _failure(ending: Ending | None, folder: Path) -> Outcome | None:
    if ending is None or ending.status == 0:
        return None
    if ending.signal is not None:
        return Outcome("signal", f"ended by {ending}")
    error = last_line(folder / "stderr")
    return Outcome("status", str(ending) + (f" ({error})" if error else ""))


def last_line(path: Path) -> str:
    """The last line of a file that names an error, or else is not empty; shortened.

    Torch's errors of a device go on with advice.
    """
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _LAST))
        lines = file.read().decode("utf-8", "replace").strip().splitlines()
    named = [line for line in lines if _ERROR.match(line)]
    return (named or lines)[-1].strip()[:160] if lines else ""


class _Marks:
    """The lines that the processes of a run write for their marks."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[Path, int] = {}

    def bad(self) -> Outcome | None:
        """The first bad mark, of the lines that are new."""
        for path in sorted(self._folder.glob("marks.*.jsonl")):
            with path.open() as file:
                file.seek(self._read.get(path, 0))
                text = file.read()
            whole = text[: text.rfind("\n") + 1]
            for line in whole.splitlines():
                mark = json.loads(line)
                if mark["bad"]:
                    kind = "nan" if "are NaN" in mark["bad"] else "differs"
                    where = f"mark {mark['name']!r}, number {mark['number']}"
                    return Outcome(kind, f"{where}: {mark['bad']}")
            self._read[path] = self._read.get(path, 0) + len(whole.encode())
        return None

    def missing(self, expected: Path | None) -> Outcome:
        """Whether all marks came that are expected."""
        if expected is not None:
            for path in sorted(expected.glob("marks.*.jsonl")):
                wanted = len(path.read_text().splitlines())
                ours = self._folder / path.name
                came = len(ours.read_text().splitlines()) if ours.exists() else 0
                if came != wanted:
                    return Outcome("differs", f"{came} marks instead of {wanted}")
        return Outcome("ok")
