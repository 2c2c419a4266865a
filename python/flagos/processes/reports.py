"""Modules that report from processes of their own, which may crash or hang."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from flagos.processes.child import Child, Tail, reading
from flagos.processes.ending import Ending

Report = dict[str, Any]
"""One JSON object that a module printed: its stage, and facts about it."""

_ERRORS = 64 << 10  # bytes of standard error in which a failure is looked up


@dataclass(frozen=True)
class Outcome:
    """The reports of a process, and how it ended."""

    #: The JSON objects it printed, one per line, in order.
    reports: list[Report]
    #: The reason of a crash, a timeout or a bad status; ``None`` for status 0.
    failure: str | None

    def report(self, stage: str) -> Report | None:
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

    ``environment`` is added to this process's. The module has a session of its own, which ends with it, as do the
    processes that it leaves behind. However much it prints, only its reports and the end of its standard error stay in
    memory.
    """
    reports: list[Report] = []
    errors = Tail(_ERRORS)
    with Child(
        [sys.executable, "-m", module, *arguments],
        environment={**os.environ, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        with (
            reading(child.stdout, lambda line: reports.extend(_reports(line))),
            reading(child.stderr, errors.add),
        ):
            child.wait(timeout)
            ending = child.end()
    # A reader that still waits for a process of another session may add to the list.
    return Outcome(list(reports), _failure(ending, errors.text()))


def _reports(line: bytes) -> Iterator[Report]:
    # Libraries may print other lines; a report is a line with a JSON object.
    with suppress(ValueError):
        value = json.loads(line.decode("utf-8", "replace"))
        if isinstance(value, dict):
            yield value


def _failure(ending: Ending, errors: str) -> str | None:
    if ending.deadline is not None:
        return f"did not finish in {ending.deadline:g} s"
    if ending.status == 0:
        return None
    if ending.signal is not None:
        return f"crashed with {ending}"
    lines = errors.strip().splitlines()
    return lines[-1] if lines else f"ended with {ending}"


def report(stage: str, **facts: Any) -> None:
    """Prints one report from the module in the process. It arrives even if the process crashes later.

    It has a line for itself, even where a library has printed a part of one.
    """
    sys.stdout.write("\n" + json.dumps({"stage": stage, **facts}) + "\n")
    sys.stdout.flush()
