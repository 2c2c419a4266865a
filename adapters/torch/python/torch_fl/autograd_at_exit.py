"""Lets autograd's threads come to rest before the interpreter ends.

torch runs the backward of a device in a thread of its own, `pt_autograd_N`, which drops the finished graph a moment
after `backward()` returned. Since torch 2.12 that graph holds a Python object, so dropping it takes the GIL; before
Python 3.14 a thread that wants the GIL of an interpreter that ends is unwound, through destructors that may not throw,
and the process aborts with "terminate called without an active exception". A program that ends with a training step
dies so when the machine is busy.

A forked child has none of its parent's threads. torch's engine makes itself anew when the child first uses it; in a
child that never does, its destructor waits ten seconds for them.
"""

from __future__ import annotations

import atexit
import os
import time

import torch

_NAME = b"pt_autograd_"
# A thread that still computes, for a daemon thread that nobody joined, is not waited for longer.
_LIMIT_S = 2.0
# What they need nearly always, where they cannot be seen.
_UNSEEN_S = 0.2


def install() -> None:
    """Wait at the end of this interpreter, and for no thread of another process at the end of a forked one."""
    atexit.register(let_rest)
    os.register_at_fork(after_in_child=lambda: atexit.register(_forget_threads_of_parent))


def let_rest() -> None:
    """Give the GIL to autograd's threads until each waits for work, two seconds at most."""
    try:
        threads = [each for each in os.listdir("/proc/self/task") if _name(each).startswith(_NAME)]
    except OSError:
        # Without /proc, or without a free file descriptor, there is no telling what they do.
        time.sleep(_UNSEEN_S)
        return
    until = time.monotonic() + _LIMIT_S
    while any(_runs(thread) for thread in threads) and time.monotonic() < until:
        time.sleep(0.001)


def _forget_threads_of_parent() -> None:
    # Any question to the engine has it made anew after a fork.
    torch.autograd.Variable._execution_engine.is_checkpoint_valid()


def _runs(thread: str) -> bool:
    # The GIL is free while the kernel answers: a thread that waited for it was woken, and counts as running.
    return _status(thread, "stat").rpartition(b") ")[2][:1] in (b"R", b"D")


def _name(thread: str) -> bytes:
    return _status(thread, "comm")


def _status(thread: str, file: str) -> bytes:
    try:
        with open(f"/proc/self/task/{thread}/{file}", "rb", buffering=0) as status:
            return status.read() or b""
    except OSError:
        return b""  # it has ended, or cannot be seen
