"""Running a program that gets the signals that are meant to end it."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Sequence
from types import FrameType
from typing import Any

_PASSED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run(command: Sequence[str], **options: Any) -> int:
    """The status of a program once it has ended: negative for the signal that ended it.

    Ctrl-C reaches it by the terminal, and SIGTERM and SIGHUP are passed on to it, so that what comes after the program
    comes in any case. `options` are those of subprocess.Popen, which raises OSError. To be called by the main thread.
    """
    started: list[subprocess.Popen[bytes]] = []
    early: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        if number == signal.SIGINT:  # the terminal sends that to both
            return
        if started:
            started[0].send_signal(number)
        else:
            early.append(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED}
    try:
        started.append(subprocess.Popen(command, **options))
        for number in early:
            started[0].send_signal(number)
        return started[0].wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
