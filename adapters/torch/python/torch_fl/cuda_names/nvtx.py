"""`torch.cuda.nvtx` by ranges of torch's profiler, while one runs: DeepSpeed opens thousands of ranges in a step."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.profiler import record_function

_pushed = threading.local()
_started: dict[int, record_function | None] = {}
_numbers = itertools.count(1)


def install() -> None:
    """Replace the functions that open and close ranges."""
    for function in (range_push, range_pop, range_start, range_end, mark, range):
        setattr(torch.cuda.nvtx, function.__name__, function)


def _stack() -> list[record_function | None]:
    if not hasattr(_pushed, "ranges"):
        _pushed.ranges = []
    ranges: list[record_function | None] = _pushed.ranges
    return ranges


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
    _stack().append(_entered(message))
    return len(_stack()) - 1


def range_pop() -> int:
    """Close the range of the calling thread that was opened last. Returns its depth, -1 where none is open."""
    ranges = _stack()
    if ranges:
        _exit(ranges.pop())
        return len(ranges)
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
    with record_function(message.format(*arguments, **named)):
        yield
