"""Tasks in processes of their own, some at a time: one that fails takes nothing with it.

Processes are forked, so that what is imported need not be imported again; CUDA must not be in use.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

Told = Callable[[str, Any], None]
"""`told(step, so_far)`: a task says which step it begins and what it has found so far."""


@dataclass(frozen=True)
class Ended:
    """How a task went: its result, or why there is none, at which step and with what found so far."""

    name: str
    seconds: float
    result: Any = None
    failure: str | None = None  # it died, or one step took too long
    over: bool = False  # the time for all of them was up, or they were stopped
    late: bool = False  # the failure is that a step took too long
    step: str = ""
    so_far: Any = None


@dataclass
class _Running:
    process: Any
    receive: Connection
    began: float
    step_began: float
    step: str = ""
    so_far: Any = None
    result: list[Any] = field(default_factory=list)


def run(
    todo: list[str],
    task: Callable[[str, Told], Any],
    jobs: int,
    step_seconds: float,
    seconds: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
) -> Generator[Ended]:
    """Run `task(name, told)` for each name in `todo`, in order, and yield how each went as it ends.

    Names are taken out of `todo`; those that are put there meanwhile are run as well. A task is killed when one
    of its steps takes longer than `step_seconds`. After `seconds`, or once `stop()` is true, no task is begun, and
    those that run are killed; all of them are yielded still. Closing the generator kills them.
    """
    context = multiprocessing.get_context("fork")
    running: dict[str, _Running] = {}
    began = time.monotonic()
    try:
        while todo or running:
            over = stop() or time.monotonic() - began > seconds
            if over:
                while todo:
                    yield Ended(todo.pop(0), 0.0, over=True)
            while todo and len(running) < jobs:
                name = todo.pop(0)
                receive, send = context.Pipe(duplex=False)
                process = context.Process(target=_child, args=(task, name, send), daemon=True)
                process.start()
                send.close()
                now = time.monotonic()
                running[name] = _Running(process, receive, now, now)
            waited_for: list[Any] = [one.receive for one in running.values()]
            # A crashed process closes its end, which is an event as well.
            ready = wait(waited_for, 0.2) if waited_for else []
            over = over or stop()  # what stops this process may have ended those as well
            for name, one in list(running.items()):
                open_still = one.receive not in ready or _listen(one)
                if one.result or not (open_still or over):
                    del running[name]
                    yield _ended(name, one)
                elif over or time.monotonic() - one.step_began > step_seconds:
                    del running[name]
                    _kill(one)
                    why = None if over else f"it took longer than {step_seconds:.0f} s"
                    spent = time.monotonic() - one.began
                    yield Ended(name, spent, None, why, over, not over, one.step, one.so_far)
    finally:
        for one in running.values():
            one.process.kill()
        for one in running.values():
            _kill(one)


def _listen(one: _Running) -> bool:
    """Take what has come; False when nothing more will."""
    try:
        while one.receive.poll():
            kind, *said = one.receive.recv()
            if kind == "result":
                one.result = said
                return True
            one.step, one.so_far = said
            one.step_began = time.monotonic()
    except (EOFError, OSError):
        return False
    return True


def _ended(name: str, one: _Running) -> Ended:
    one.process.join(5)
    if one.process.is_alive():
        one.process.kill()
    spent = time.monotonic() - one.began
    one.receive.close()
    if one.result:
        return Ended(name, spent, one.result[0], step=one.step, so_far=one.so_far)
    code = one.process.exitcode
    how = signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"
    failure = f"the process ended with {how}"
    return Ended(name, spent, None, failure, step=one.step, so_far=one.so_far)


def _kill(one: _Running) -> None:
    one.process.kill()
    one.process.join(5)  # one that waits for a lost device may not die
    one.receive.close()


def _child(task: Callable[[str, Told], Any], name: str, send: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What it prints is not the command's output.
    sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    torch.set_num_threads(1)
    with contextlib.suppress(BrokenPipeError):  # nobody waits for it any more
        send.send(("result", task(name, lambda step, so_far: send.send(("step", step, so_far)))))
    send.close()
    os._exit(0)
