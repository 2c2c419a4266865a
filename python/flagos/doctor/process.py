"""Checks in processes of their own, which may crash or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


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
    """Runs ``python -m module`` and collects its reports. Failures of the module are not raised."""
    command = [sys.executable, "-m", module, *arguments]
    try:
        process = subprocess.run(
            command,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return Outcome(_reports(late.stdout or b""), f"did not finish in {timeout:g} s")
    return Outcome(_reports(process.stdout), _failure(process))


def _reports(output: bytes) -> list[dict[str, Any]]:
    found = []
    for line in output.decode("utf-8", "replace").splitlines():
        # Libraries may print other lines; a report is a line with a JSON object.
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _failure(process: subprocess.CompletedProcess[bytes]) -> str | None:
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        try:
            name = signal.Signals(-process.returncode).name
        except ValueError:
            name = f"signal {-process.returncode}"
        return f"crashed with {name}"
    lines = process.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"ended with status {process.returncode}"


def report(stage: str, **facts: Any) -> None:
    """Prints one report from the module in the process. It arrives even if the process crashes later."""
    sys.stdout.write(json.dumps({"stage": stage, **facts}) + "\n")
    sys.stdout.flush()
