"""`torch.cuda.nvtx` by ranges of torch's profiler, while one runs: DeepSpeed opens thousands of ranges in a step."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.profiler import record_function


class _OfAThread(threading.local):
    def __init__(self) -> None:
        self.pushed: list[record_function | None] = []


_ranges = _OfAThread()
_started: dict[int, record_function | None] = {}
_numbers = itertools.count(1)


def install() -> None:
    """Replace the functions that open and close ranges."""
    for function in (range_push, range_pop, range_start, range_end, mark, range):
        setattr(torch.cuda.nvtx, function.__name__, function)


def _entered(message: str) -> record_function | None:
    if not torch.autograd._profiler_enabled():
        return None
    opened = record_function(message)
    opened.__enter__()
    return opened


def _exit(opened: record_function | None) -> None:
    if opened is not None:
        opened.__exit__(None, None, None)


def range_push(message: str) -> int:
    """Open a range of the calling thread. Returns its depth, from 0."""
    pushed = _ranges.pushed
    pushed.append(_entered(message))
    return len(pushed) - 1


def range_pop() -> int:
    """Close the range of the calling thread that was opened last. Returns its depth, -1 where none is open."""
    pushed = _ranges.pushed
    if pushed:
        _exit(pushed.pop())
        return len(pushed)
    return -1


def range_start(message: str) -> int:
    """Open a range that another thread may close. Returns its number."""
    number = next(_numbers)
    _started[number] = _entered(message)
    return number


def range_end(number: int) -> None:
    """Close the range of that number."""
    _exit(_started.pop(number, None))


def mark(message: str) -> None:
    """Mark one moment."""
    _exit(_entered(message))


@contextmanager
def range(message: str, *arguments: Any, **named: Any) -> Iterator[None]:
    """A range around a block; the arguments are formatted into the message."""
    opened = _entered(message.format(*arguments, **named))
    try:
        yield
    finally:
        _exit(opened)
