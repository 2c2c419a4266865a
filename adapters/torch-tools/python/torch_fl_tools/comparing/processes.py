"""Tasks in processes of their own, several at a time: a crash of one does not affect the others.

Processes are forked, to inherit imported modules; then the device must not be in use. Or they are spawned
(`context="spawn"`), and then the task is pickled.
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

from flagos.messages import signal_name

Told = Callable[[str, Any], None]
"""`told(step, so_far)`: a task reports the step it begins and its findings so far."""

_OUTPUT_TAIL = 2000


@dataclass(frozen=True)
class Ended:
    """The outcome of a task: its result, or the failure with the step and the findings so far."""

    name: str
    seconds: float  # since its first step
    result: Any = None
    failure: str | None = None  # the process died, or took too long
    over: bool = False  # the time for all tasks was up, or `stop()` was true
    late: bool = False  # the failure is a timeout
    step: str = ""
    so_far: Any = None
    output: str = ""  # the end of the process's output, with `keep_output`


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
    """Run `task(name, told)` for each name in `todo`, in order, and yield the outcome of each as it ends.

    Names are removed from `todo`; names added meanwhile are run as well. A task is killed when one of its steps
    takes longer than `step_seconds`, or all steps together longer than `task_seconds`. After `seconds`, or once
    `stop()` is true, no task is begun and running tasks are killed; their outcomes are still yielded. Closing the
    generator kills running tasks. A process serves one task, or several as long as `reuse()`, called in the
    process, is true. Its output is lost, or with `keep_output` the end of it is in `Ended.output`.
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
                over = (
                    over or stop()
                )  # a signal that stops this process may have ended the tasks as well
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
    """A process and its current task."""

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
        """Make the process begin a task."""
        self.name, self.step, self.so_far = name, "", None
        self.result: list[Any] = []
        self.began = self.step_began = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # its end is an event
            self.pipe.send(name)

    def listen(self) -> bool:
        """Read the messages that arrived. Returns False when the pipe is closed."""
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
        """The message of a timeout, or None."""
        now = time.monotonic()
        if now - self.step_began > step_seconds:
            return f"it took longer than {step_seconds:.0f} s"
        if self.step and now - self.began > task_seconds:
            return f"it took longer than {task_seconds:.0f} s"
        return None

    def may_go_on(self) -> bool:
        """Whether the process takes another task after its result."""
        return bool(self.result) and bool(self.result[1])

    def ended(self) -> Ended:
        """The outcome of a task that ended. Joins the process, unless it may go on."""
        if self.result:
            result = self.told_of(result=self.result[0])
            if not self.may_go_on():
                self._join()
            return result
        self._join()
        code = self.process.exitcode
        how = signal_name(code) if code is not None and code < 0 else f"status {code}"
        return self.told_of(failure=f"the process ended with {how}", late=False)

    def told_of(
        self,
        result: Any = None,
        failure: str | None = None,
        over: bool = False,
        late: bool = True,
    ) -> Ended:
        """The outcome of the task with its step and findings so far."""
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
        """Kill the process."""
        self.process.kill()
        self.process.join(5)  # a process that waits for a lost device may not die
        self.pipe.close()


def _serve(
    task: Callable[[str, Told], Any],
    reuse: Callable[[], bool] | None,
    pipe: Connection,
    output: str | None,
) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The output of tasks must not mix with the output of the command.
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
