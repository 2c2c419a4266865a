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

from flagos.processes.child import die_with_parent, kill_group
from flagos.processes.ending import MemoryWatch

Report = Callable[[str, Any], None]
"""`report(step, partial)`: a task reports the step it begins and its findings so far."""

_OUTPUT_TAIL = 2000
_JOIN = 5.0  # seconds that a process gets to end


@dataclass(frozen=True)
class TaskOutcome:
    """The outcome of a task: its result, or the failure with the step and the findings so far."""

    name: str
    seconds: float  # since its first step
    result: Any = None
    failure: str | None = None  # the process died, or took too long
    over: bool = False  # the time for all tasks was up, or `stop()` was true
    late: bool = False  # the failure is a timeout
    step: str = ""
    partial: Any = None
    output: str = ""  # the end of the process's output, with `capture_output`


def run(
    todo: list[str],
    task: Callable[[str, Report], Any],
    jobs: int,
    step_seconds: float,
    seconds: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
    *,
    task_seconds: float = float("inf"),
    context: Literal["fork", "spawn"] = "fork",
    prepare: Callable[[], object] | None = None,
    reuse: Callable[[], bool] | None = None,
    capture_output: bool = False,
) -> Generator[TaskOutcome]:
    """Run `task(name, report)` for each name in `todo`, in order, and yield the outcome of each as it ends.

    Names are removed from `todo`; names added meanwhile are run as well. A task is killed when one of its steps
    takes longer than `step_seconds`, or all steps together longer than `task_seconds`. After `seconds`, or once
    `stop()` is true, no task is begun and running tasks are killed; their outcomes are still yielded. Closing the
    generator kills running tasks, with the processes that they started. A process calls `prepare()` first and serves
    one task, or several as long as `reuse()`, called in the process, is true. Its output is lost, or with
    `capture_output` the end of it is in `TaskOutcome.output`.
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
                        yield TaskOutcome(todo.pop(0), 0.0, over=True)
                while todo and len(workers) < jobs:
                    output = Path(folder, str(next(numbers))) if capture_output else None
                    workers.append(_Worker(context, task, prepare, reuse, todo.pop(0), output))
                pipes: list[Any] = [worker.pipe for worker in workers]
                # A crashed process closes its end, which is an event as well.
                ready = wait(pipes, 0.2) if pipes else []
                over = (
                    over or stop()
                )  # a signal that stops this process may have ended the tasks as well
                for worker in list(workers):
                    is_open = worker.pipe not in ready or worker.listen()
                    late = worker.late(step_seconds, task_seconds)
                    if worker.result or not (is_open or over):
                        ended = worker.finish()
                        if todo and not over and worker.takes_more():
                            worker.give(todo.pop(0))
                        else:
                            workers.remove(worker)
                            worker.dismiss()
                        yield ended
                    elif over or late is not None:
                        workers.remove(worker)
                        worker.kill()
                        worker.join()
                        yield worker.outcome(failure=None if over else late, over=over)
        finally:
            for worker in workers:
                worker.kill()
            for worker in workers:
                worker.join()


class _Worker:
    """A process and its current task."""

    def __init__(
        self,
        context: Literal["fork", "spawn"],
        task: Callable[[str, Report], Any],
        prepare: Callable[[], object] | None,
        reuse: Callable[[], bool] | None,
        name: str,
        output: Path | None,
    ) -> None:
        how = multiprocessing.get_context(context)
        self.pipe, theirs = how.Pipe()
        self.process: Any = how.Process(  # type: ignore[attr-defined]
            target=_serve,
            args=(
                task,
                prepare,
                reuse,
                theirs,
                None if output is None else str(output),
                os.getpid(),
            ),
            daemon=True,
        )
        self._output = output
        self._memory = MemoryWatch()
        self.process.start()
        theirs.close()
        self.give(name)

    def give(self, name: str) -> None:
        """Make the process begin a task."""
        self.name, self.step, self.partial = name, "", None
        self.result: list[Any] = []
        self.began = self.step_began = time.monotonic()
        with contextlib.suppress(BrokenPipeError):  # its end is an event
            self.pipe.send(name)

    def listen(self) -> bool:
        """Read the messages that arrived. Returns False when the pipe is closed."""
        try:
            while self.pipe.poll():
                kind, *message = self.pipe.recv()
                if kind == "result":
                    self.result = message
                    return True
                now = time.monotonic()
                if not self.step:
                    self.began = now
                self.step, self.partial = message
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

    def takes_more(self) -> bool:
        """Whether the process takes another task after its result."""
        return bool(self.result) and bool(self.result[1])

    def finish(self) -> TaskOutcome:
        """The outcome of a task that ended."""
        if self.result:
            return self.outcome(result=self.result[0])
        self.join()
        status = self.process.exitcode
        ending = f"status {status}" if status is None else self._memory.ending(status)
        return self.outcome(failure=f"the process ended with {ending}", late=False)

    def outcome(
        self,
        result: Any = None,
        failure: str | None = None,
        over: bool = False,
        late: bool = True,
    ) -> TaskOutcome:
        """The outcome of the task with its step and findings so far."""
        return TaskOutcome(
            self.name,
            time.monotonic() - self.began,
            result,
            failure,
            over,
            late and failure is not None,
            self.step,
            self.partial,
            self._tail() if failure is not None else "",
        )

    def _tail(self) -> str:
        if self._output is None or not self._output.exists():
            return ""
        return self._output.read_text(errors="replace")[-_OUTPUT_TAIL:]

    def dismiss(self) -> None:
        """Lets a process end that has no further task."""
        if self.takes_more():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                self.pipe.send(None)
        self.join()

    def kill(self) -> None:
        """Kills the process and all that it has started."""
        kill_group(self.process.pid)
        self.process.kill()  # it may not lead a group yet

    def join(self) -> None:
        """Waits for the process, and kills what it left behind."""
        self.process.join(_JOIN)  # a process that waits for a lost device may not die
        self.kill()
        self.pipe.close()


def _serve(
    task: Callable[[str, Report], Any],
    prepare: Callable[[], object] | None,
    reuse: Callable[[], bool] | None,
    pipe: Connection,
    output: str | None,
    parent: int,
) -> None:
    os.setsid()
    die_with_parent()
    if os.getppid() != parent:  # it has ended before
        os._exit(1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    # The output of tasks must not mix with the output of the command.
    sys.stdout = sys.stderr = open(output or os.devnull, "w")  # noqa: SIM115
    os.dup2(sys.stdout.fileno(), 1)
    os.dup2(sys.stdout.fileno(), 2)
    if prepare is not None:
        prepare()
    with contextlib.suppress(BrokenPipeError, EOFError):  # nobody waits for it any more
        more = True
        while more and (name := pipe.recv()) is not None:
            result = task(name, lambda step, partial: pipe.send(("step", step, partial)))
            more = reuse is not None and reuse()
            pipe.send(("result", result, more))
    pipe.close()
    os._exit(0)
