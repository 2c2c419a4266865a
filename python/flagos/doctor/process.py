"""Checks in processes of their own, which may crash or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any

from flagos.messages import signal_name

#: The longest line that is read as one, in bytes. A report of all of torch's operators has 0.1 MB.
LONGEST = 4 << 20
#: How many lines of standard error are kept.
LAST = 100
#: How long output is waited for that a process outside the session still holds open.
LINGERING = 1.0


@dataclass(frozen=True)
class Outcome:
    """The reports of a process, and how it ended."""

    #: The JSON objects it printed, one per line, in order.
    reports: list[dict[str, Any]]
    #: The reason of a crash, a timeout or a bad status; ``None`` for status 0.
    failure: str | None

    def report(self, stage: str) -> dict[str, Any] | None:
        """The report of one stage, if the process got that far."""
        return next((entry for entry in self.reports if entry.get("stage") == stage), None)


def run_module(
    module: str,
    arguments: Sequence[str] = (),
    *,
    timeout: float,
    environment: Mapping[str, str] | None = None,
) -> Outcome:
    """Runs ``python -m module`` and collects its reports. Failures of the module are not raised.

    The module has a session of its own, which ends with it: processes that it leaves behind are ended, too. However
    much it prints, no more is kept than its reports and the end of its standard error.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        env={**os.environ, **(environment or {})},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    reports: list[dict[str, Any]] = []
    last: deque[bytes] = deque(maxlen=LAST)
    assert process.stdout is not None and process.stderr is not None
    late = None
    with (
        _reading(process.stdout, lambda line: reports.extend(_reports(line))),
        _reading(process.stderr, last.append),
    ):
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            late = f"did not finish in {timeout:g} s"
        finally:
            # The process, unless it has ended, and all that it has started.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    # A reader that still waits for a process of another session may add to the list.
    return Outcome(list(reports), late or _failure(process.returncode, b"".join(last)))


@contextmanager
def _reading(stream: IO[bytes], taken: Callable[[bytes], object]) -> Iterator[None]:
    """Reads the lines of a stream in a thread, while the block runs and until the stream ends."""

    def read() -> None:
        for line in iter(lambda: stream.readline(LONGEST), b""):
            taken(line)
        stream.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(LINGERING)


def _reports(line: bytes) -> Iterator[dict[str, Any]]:
    # Libraries may print other lines; a report is a line with a JSON object.
    with suppress(ValueError):
        value = json.loads(line.decode("utf-8", "replace"))
        if isinstance(value, dict):
            yield value


def _failure(status: int, error: bytes) -> str | None:
    if status == 0:
        return None
    if status < 0:
        return f"crashed with {signal_name(status)}"
    lines = error.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ended with status {status}"


def report(stage: str, **facts: Any) -> None:
    """Prints one report from the module in the process. It arrives even if the process crashes later.

    It has a line for itself, even where a library has printed a part of one.
    """
    sys.stdout.write("\n" + json.dumps({"stage": stage, **facts}) + "\n")
    sys.stdout.flush()
