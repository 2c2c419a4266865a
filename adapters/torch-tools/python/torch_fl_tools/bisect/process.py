"""One run of the program in a process group of its own, and its outcome."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from flagos.cli.output import CommandError
from flagos.messages import signal_name
from torch_fl_tools.bisect.findings import Outcome

_LAST = 4000  # bytes of standard error that a reason is looked for in
_ERROR = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
_PR_SET_PDEATHSIG = 1


def run(
    command: Sequence[str],
    folder: Path,
    trial: dict[str, Any],
    *,
    environment: dict[str, str],
    timeout: float | None,
    expected: Path | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Run the command as `trial` says, with its output in `folder`.

    `expected` is the folder of the run whose marks are compared with. The run is ended at the first mark that is
    bad, after `timeout` seconds, and once `stop()` is true: the program, and all processes of its group.
    """
    description = folder / "trial.json"
    description.write_text(json.dumps({**trial, "folder": str(folder)}, indent=1))
    variables = {
        **os.environ,
        "PYTHONHASHSEED": str(trial["seed"]),
        "PYTHONFAULTHANDLER": "1",
        **environment,
        "FLAGOS_BISECT": str(description),
    }
    marks = _Marks(folder)
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        try:
            process = subprocess.Popen(
                command,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )
        except OSError as error:
            raise CommandError(
                f"{command[0]} cannot be run: {error.strerror}",
                "name a program: flagos bisect -- python train.py",
            ) from error
        began = time.monotonic()
        stopped = None
        try:
            while stopped is None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.05)
                    break
                if timeout is not None and time.monotonic() - began > timeout:
                    stopped = Outcome("timeout", f"did not end in {timeout:g} s")
                elif stop():
                    stopped = Outcome("stopped")
                else:
                    stopped = marks.bad()
        finally:
            # The program, unless it has ended, and what it started and left behind.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return stopped or marks.bad() or _ended(process.returncode, folder) or marks.missing(expected)


def _die_with_parent() -> None:
    """In the child: end with this command, also if the command is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _ended(status: int, folder: Path) -> Outcome | None:
    if status == 0:
        return None
    if status < 0:
        return Outcome("signal", f"ended by {signal_name(status)}")
    said = last_line(folder / "stderr")
    return Outcome("status", f"status {status}" + (f" ({said})" if said else ""))


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
                told = json.loads(line)
                if told["bad"]:
                    kind = "nan" if "are NaN" in told["bad"] else "differs"
                    where = f"mark {told['name']!r}, number {told['number']}"
                    return Outcome(kind, f"{where}: {told['bad']}")
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
