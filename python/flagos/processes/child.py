"""A child process in a session of its own, which ends together with all that it has started."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

from flagos.processes.ending import Ending, MemoryWatch

#: The longest line that is read as one, in bytes. A report of all of torch's operators has 0.1 MB.
LONGEST_LINE = 4 << 20
#: How many bytes of an output stream `run` returns at most: its end.
LONGEST_OUTPUT = 4 << 20
#: How long to wait for output that a process outside the session still holds open, in seconds.
LINGERING = 1.0
_POLL = 0.05
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)

Stream = int | IO[bytes]
"""As for ``subprocess``: a constant of it, a file descriptor or a file."""


class Child:
    """A process that leads a session. As a context manager it ends the session at the end of the block."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        stdin: Stream = subprocess.DEVNULL,
        stdout: Stream | None = None,
        stderr: Stream | None = None,
        pass_fds: Collection[int] = (),
        dies_with_parent: bool = False,
    ) -> None:
        """Starts a command with the whole ``environment``, by default this process's.

        ``dies_with_parent`` has the kernel end it even if this process is killed: only for programs without other
        threads, since Python runs in the child before the command. Raises OSError if the command cannot be started.
        """
        self._memory = MemoryWatch()
        self._ending: Ending | None = None
        self._process = subprocess.Popen(
            command,
            env=environment,
            cwd=folder,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            start_new_session=True,
            preexec_fn=die_with_parent if dies_with_parent else None,
        )
        self.pid = self._process.pid
        self.stdin, self.stdout, self.stderr = (
            self._process.stdin,
            self._process.stdout,
            self._process.stderr,
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.end()

    def running(self) -> bool:
        """Whether the process has not ended yet."""
        return self._process.poll() is None

    def wait(
        self, deadline: float | None = None, *, stop: Callable[[], object] | None = None
    ) -> Ending | None:
        """The ending of the process. Its session is killed after ``deadline`` seconds.

        Returns ``None`` as soon as ``stop()``, called several times per second, is true: the process still runs.
        """
        began = time.monotonic()
        while self._ending is None:
            left = None if deadline is None else began + deadline - time.monotonic()
            if left is not None and left <= 0 and self.running():
                self._ending = Ending(self.end().status, deadline)
                break
            pause = left if stop is None else _POLL if left is None else min(_POLL, left)
            try:
                status = self._process.wait(pause)
            except subprocess.TimeoutExpired:
                if stop is not None and stop():
                    return None
            else:
                self._ending = self._memory.ending(status)
        return self._ending

    def end(self) -> Ending:
        """Kills what is left of the session: the process, unless it has ended, and all that it has started."""
        killed = self.running()
        kill_group(self.pid)
        status = self._process.wait()
        if self._ending is None:
            self._ending = Ending(status) if killed else self._memory.ending(status)
        return self._ending


@dataclass(frozen=True, slots=True)
class Finished:
    """The ending of a process and the end of what it printed."""

    ending: Ending
    output: str
    errors: str


def run(
    command: Sequence[str | Path],
    *,
    deadline: float,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Runs a command to its end, or for at most ``deadline`` seconds. Raises OSError if it cannot be started."""
    output, errors = Tail(LONGEST_OUTPUT), Tail(LONGEST_OUTPUT)
    with Child(
        command, environment=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        with reading(child.stdout, output.add), reading(child.stderr, errors.add):
            child.wait(deadline)
            ending = child.end()
    return Finished(ending, output.text(), errors.text())


class Tail:
    """The end of an output: whole lines of at most ``limit`` bytes together, and always the last one."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: list[bytes] = []
        self._size = 0
        self._lock = threading.Lock()

    def add(self, line: bytes) -> None:
        """Appends a line, and drops old lines beyond the limit."""
        with self._lock:
            self._lines.append(line)
            self._size += len(line)
            if self._size > 2 * self._limit:
                self._trim()

    def text(self) -> str:
        """The lines as text."""
        with self._lock:
            self._trim()
            return b"".join(self._lines).decode("utf-8", "replace")

    def _trim(self) -> None:
        first = 0
        while self._size > self._limit and first < len(self._lines) - 1:
            self._size -= len(self._lines[first])
            first += 1
        del self._lines[:first]


@contextmanager
def reading(stream: IO[bytes], on_line: Callable[[bytes], object]) -> Iterator[None]:
    """Reads the lines of a stream in a thread, while the block runs and until the stream ends.

    A process outside the session may hold the stream open: it is read for a second more.
    """

    def read() -> None:
        for line in iter(lambda: stream.readline(LONGEST_LINE), b""):
            on_line(line)
        stream.close()

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join(LINGERING)


def kill_group(leader: int) -> None:
    """Kills the process group of a process that leads one, if any of its processes is left."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


def die_with_parent() -> None:
    """In a child: has the kernel end this process when the thread that started it ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
