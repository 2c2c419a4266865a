"""Tasks in processes of their own, some at a time: one that fails takes nothing with it.

Processes are forked, so that modules need not be imported again, and CUDA must not be in use; or they are started
anew (`context="spawn"`), and then the task is pickled.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from itertools import count
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Literal

import torch

Told = Callable[[str, Any], None]
"""`told(step, so_far)`: a task says which step it begins and what it has found so far."""

_OUTPUT_TAIL = 2000


@dataclass(frozen=True)
class Ended:
    """How a task went: its result, or why there is none, at which step and with what found so far."""

    name: str
    seconds: float  # since its first step
    result: Any = None
    failure: str | None = None  # it died, or took too long
    over: bool = False  # the time for all of them was up, or they were stopped
    late: bool = False  # the failure is that it took too long
    step: str = ""
    so_far: Any = None
    output: str = ""  # the end of what its process printed, where that is kept


def run(
    todo: list[str],
    task: Callable[[str, Told], Any],
    jobs: int,
    step_seconds: float,
    seconds: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
    *,
    task_seconds: float = float("inf"),
    context: Literal["fork", "spawn"] = "fork",
    reuse: Callable[[], bool] | None = None,
    keep_output: bool = False,
) -> Generator[Ended]:
    """Run `task(name, told)` for each name in `todo`, in order, and yield how each went as it ends.

    Names are taken out of `todo`; those that are put there meanwhile are run as well. A task is killed when one
    of its steps takes longer than `step_seconds`, or all of them more than `task_seconds`. After `seconds`, or once
    `stop()` is true, no task is begun, and those that run are killed; all of them are yielded still. Closing the
    generator kills them. A process serves one task, or goes on with the next as long as `reuse()`, which it calls,
    is true. What it prints is lost, or with `keep_output` its end is in `Ended.output`.
    """
    workers: list[_Worker] = []
    numbers = count()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tasks-") as folder:
        try:
            while todo or workers:
                over = stop() or time.monotonic() - began > seconds
                if over:
                    while todo:
                        yield Ended(todo.pop(0), 0.0, over=True)
                while todo and len(workers) < jobs:
                    output = Path(folder, str(next(numbers))) if keep_output else None
                    workers.append(_Worker(context, task, reuse, todo.pop(0), output))
                waited_for: list[Any] = [worker.pipe for worker in workers]
                # A crashed process closes its end, which is an event as well.
                ready = wait(waited_for, 0.2) if waited_for else []
                over = over or stop()  # what stops this process may have ended those as well
                for worker in list(workers):
                    open_still = worker.pipe not in ready or worker.listen()
                    late = worker.late(step_seconds, task_seconds)
                    if worker.result or not (open_still or over):
                        ended = worker.ended()
                        if todo and not over and worker.may_go_on():
                            worker.give(todo.pop(0))
                        else:
                            workers.remove(worker)
                        yield ended
                    elif over or late is not None:
                        workers.remove(worker)
                        worker.kill()
                        yield worker.told_of(failure=None if over else late, over=over)
        finally:
            for worker in workers:
                worker.process.kill()
            for worker in workers:
                worker.kill()


class _Worker:
    """A process, and the task that it is busy with."""

    def __init__(
        self,
        context: Literal["fork", "spawn"],
        task: Callable[[str, Told], Any],
        reuse: Callable[[], bool] | None,
        name: str,
        output: Path | None,
    ) -> None:
        how = multiprocessing.get_context(context)
        self.pipe, theirs = how.Pipe()
        self.process: Any = how.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(task, reuse, theirs, None if output is None else str(output)),
            daemon=True,
        )
        self._output = output
        self.process.start()
        theirs.close()
        self.give(name)

    def give(self, name: str) -> None:
        """Have the process begin a task."""
        self.name, self.step, self.so_far = name, "", None
        self.result: list[Any] = []
        self.began = self.step_began = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # its end is an event
            self.pipe.send(name)

    def listen(self) -> bool:
        """Take what has come; False when nothing more will."""
        try:
            while self.pipe.poll():
                kind, *said = self.pipe.recv()
                if kind == "result":
                    self.result = said
                    return True
                now = time.monotonic()
                if not self.step:
                    self.began = now
                self.step, self.so_far = said
                self.step_began = now
        except (EOFError, OSError):
            return False
        return True

    def late(self, step_seconds: float, task_seconds: float) -> str | None:
        """What took too long, if something did."""
        now = time.monotonic()
        if now - self.step_began > step_seconds:
            return f"it took longer than {step_seconds:.0f} s"
        if self.step and now - self.began > task_seconds:
            return f"it took longer than {task_seconds:.0f} s"
        return None

    def may_go_on(self) -> bool:
        """Whether the process, whose task has ended, takes another."""
        return bool(self.result) and bool(self.result[1])

    def ended(self) -> Ended:
        """How the task ended; the process as well, unless it may go on."""
        if self.result:
            result = self.told_of(result=self.result[0])
            if not self.may_go_on():
                self._join()
            return result
        self._join()
        code = self.process.exitcode
        how = signal.Signals(-code).name if code is not None and code < 0 else f"status {code}"
        return self.told_of(failure=f"the process ended with {how}", late=False)

    def told_of(
        self,
        result: Any = None,
        failure: str | None = None,
        over: bool = False,
        late: bool = True,
    ) -> Ended:
        """What is known of the task."""
        return Ended(
            self.name,
            time.monotonic() - self.began,
            result,
            failure,
            over,
            late and failure is not None,
            self.step,
            self.so_far,
            self._tail() if failure is not None else "",
        )

    def _tail(self) -> str:
        if self._output is None or not self._output.exists():
            return ""
        return self._output.read_text(errors="replace")[-_OUTPUT_TAIL:]

    def _join(self) -> None:
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()
        self.pipe.close()

    def kill(self) -> None:
        """End the process, whatever it does."""
        self.process.kill()
        self.process.join(5)  # one that waits for a lost device may not die
        self.pipe.close()


def _serve(
    task: Callable[[str, Told], Any],
    reuse: Callable[[], bool] | None,
    pipe: Connection,
    output: str | None,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # What it prints is not the command's output.
    sys.stdout = sys.stderr = open(output or os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    torch.set_num_threads(1)
    with contextlib.suppress(BrokenPipeError, EOFError):  # nobody waits for it any more
        goes_on = True
        while goes_on:
            name = pipe.recv()
            result = task(name, lambda step, so_far: pipe.send(("step", step, so_far)))
            goes_on = reuse is not None and reuse()
            pipe.send(("result", result, goes_on))
    pipe.close()
    os._exit(0)
