"""The run of the program, observed."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flagos.cli.output import CommandError
from flagos.processes import foreground
from torch_fl_tools.report import DEVICE_SECONDS, VARIABLE


@dataclass(frozen=True)
class Ended:
    """How the program ended."""

    status: int  # negative: the signal that ended it
    seconds: float
    started: float  # seconds since the epoch


def run(command: Sequence[str], folder: Path, device_seconds: float, *, quiet: bool) -> Ended:
    """Run the command, whose processes leave their files in `folder`.

    Ctrl-C reaches the program, and SIGTERM and SIGHUP are forwarded to it: the report is made in any case. With
    `quiet` what the program prints goes to standard error.
    """
    (folder / DEVICE_SECONDS).write_text(str(device_seconds))
    started, began = time.time(), time.monotonic()
    try:
        status = foreground.run(
            command,
            environment={**os.environ, VARIABLE: str(folder)},
            stdout=sys.stderr if quiet else None,
        )
    except OSError as error:
        raise CommandError(
            f"{command[0]} cannot be run: {error.strerror}",
            "name a program: flagos report -- python train.py",
        ) from error
    return Ended(status, time.monotonic() - began, started)
