"""`torch.cuda.nvtx` by ranges of torch's profiler."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.autograd.profiler import record_function

_opened = threading.local()


def range_push(msg: str) -> int:
    """Opens a range of this thread. Returns its depth, from 0."""
    if not hasattr(_opened, "ranges"):
        _opened.ranges = []
    opened = record_function(msg)
    opened.__enter__()
    _opened.ranges.append(opened)
    return len(_opened.ranges) - 1


def range_pop() -> int:
    """Closes the range of this thread that was opened last. Returns its depth, -1 where none is open."""
    ranges: list[record_function] = getattr(_opened, "ranges", [])
    if not ranges:
        return -1
    ranges.pop().__exit__(None, None, None)
    return len(ranges)


def mark(msg: str) -> None:
    """Marks one moment."""
    with record_function(msg):
        pass


@contextmanager
def range(msg: str, *arguments: Any, **named: Any) -> Iterator[None]:
    """A range around a block; the arguments are formatted into the message."""
    with record_function(msg.format(*arguments, **named)):
        yield
