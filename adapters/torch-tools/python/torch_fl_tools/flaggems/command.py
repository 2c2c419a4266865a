"""The common options and signal handling of `flagos verify` and `flagos tune`."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def at_least_one(text: str) -> int:
    """argparse type: a number."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def not_negative(text: str) -> float:
    """argparse type: a number of seconds."""
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return seconds


@contextmanager
def one_interrupt() -> Iterator[Callable[[], bool]]:
    """The first SIGINT or SIGTERM raises KeyboardInterrupt. Later ones are ignored, since results are being written.

    GNU timeout sends two at once. Yields a function that says whether one came: Python drops what a handler
    raises while it forks.
    """
    came: list[int] = []

    def interrupted(number: int, _: Any) -> None:
        came.append(number)
        if len(came) == 1:
            raise KeyboardInterrupt

    before = {each: signal.signal(each, interrupted) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: bool(came)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
