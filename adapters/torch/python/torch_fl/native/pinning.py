"""The thread that pins batches leaves the threads of the process their number of threads.

`DataLoader(pin_memory=True, num_workers=...)` starts a thread that calls `torch.set_num_threads(1)` for itself. torch
gives that number to every thread that begins later, too, and autograd's thread for the device is one: where the CPU
computes, each backward would run on one core, and its sums would be split unlike those of the CPU device.
"""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch


def register() -> None:
    """Wrap the thread's function. Idempotent."""
    from torch.utils.data._utils import pin_memory

    loop = pin_memory._pin_memory_loop
    if hasattr(loop, "__wrapped__"):
        return

    @functools.wraps(loop)
    def keeping_threads(
        in_queue: Any, out_queue: Any, device_id: Any, done_event: Any, *rest: Any
    ) -> None:
        done = _Done(done_event, torch.get_num_threads())
        loop(in_queue, out_queue, device_id, done, *rest)

    setattr(pin_memory, loop.__name__, keeping_threads)


class _Done:
    """The event that ends the loop. The loop asks for it first when it has set its own number of threads."""

    def __init__(self, event: Any, threads: int) -> None:
        self._event = event
        self._threads: int | None = threads

    def is_set(self) -> bool:
        """Whether the loop is to end."""
        if self._threads is not None:
            # In a thread that ends, so that the number of this one stays 1.
            restoring = threading.Thread(target=torch.set_num_threads, args=(self._threads,))
            restoring.start()
            restoring.join()
            self._threads = None
        ended: bool = self._event.is_set()
        return ended
