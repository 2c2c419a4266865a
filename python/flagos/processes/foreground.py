"""Running a program in the foreground, with the signals that are meant to end it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import IO

_FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: IO[str] | None = None,
) -> int:
    """Runs a program to its end and returns its status: negative for the signal that ended it.

    Ctrl-C reaches it by the terminal, and SIGTERM and SIGHUP are forwarded to it, so that the caller goes on after the
    program in any case. Only the main thread can call it. Raises OSError if the program cannot be started.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:  # the terminal sends that to both
            return
        if started:
            started[0].send_signal(number)
        else:
            early.append(number)

    before = {number: signal.signal(number, forward) for number in _FORWARDED}
    try:
        started.append(subprocess.Popen(command, env=environment, stdout=stdout))
        for number in early:
            started[0].send_signal(number)
        return started[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
