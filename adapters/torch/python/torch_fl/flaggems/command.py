"""What `flagos verify` and `flagos tune` have in common as commands."""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import Any


def at_least_one(text: str) -> int:
    """A number of an option, for argparse."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is less than 1")
    return number


def not_negative(text: str) -> float:
    """Seconds of an option, for argparse."""
    seconds = float(text)
    if not seconds >= 0:
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return seconds


def matches(name: str, patterns: str) -> bool:
    """Whether a name is among shell patterns with commas between them, as `--ops` takes them."""
    return any(fnmatchcase(name, pattern.strip()) for pattern in patterns.split(","))


@contextmanager
def one_interrupt() -> Iterator[Callable[[], bool]]:
    """The first SIGINT or SIGTERM raises KeyboardInterrupt; later ones nothing, for results are being written.

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
