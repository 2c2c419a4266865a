"""The queue of a vendor's library: a second thread hands calls to it, so that the program goes on at once."""

from __future__ import annotations

import atexit
import functools

import torch

from torch_fl.flagos import automatic

__all__ = ["counts", "is_on", "turn"]

_ops = torch.ops.flagos


def turn(on: bool) -> None:
    """Turn the queue on or off, for the calls of all threads from now on.

    Raises NotImplementedError on a vendor whose library has no kernels that post their work.
    """
    _ops.queue_want(on)
    if on:
        automatic.watch_addresses()
        _hand_over_at_exit()


def is_on() -> bool:
    """Whether calls are handed to the library by a second thread."""
    return bool(_ops.queue_wanted())


def counts() -> dict[str, int]:
    """What the queue did since the process began: parts of calls, and how often somebody had to wait for them."""
    posted, waits = _ops.queue_counts()
    return {"posted": posted, "waits": waits}


@functools.cache
def _hand_over_at_exit() -> None:
    """Has the end of the program wait for its calls, and tell of those that failed."""
    atexit.register(_ops.queue_flush)
