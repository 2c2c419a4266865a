"""How a process ended: with a status, by a signal, at its deadline, or for lack of memory."""

from __future__ import annotations

import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Ending:
    """The end of a process. As text it is a name for a sentence: ``status 3``, ``SIGSEGV``."""

    #: The exit status; negative for the signal that ended the process.
    status: int
    #: The seconds that the process had; ``None`` unless it was killed because they were over.
    deadline: float | None = None
    #: Whether the kernel killed the process because memory ran out.
    out_of_memory: bool = False

    @property
    def signal(self) -> str | None:
        """The signal that ended the process, such as ``SIGKILL``."""
        return signal_name(self.status) if self.status < 0 else None

    def __str__(self) -> str:
        if self.deadline is not None:
            return f"{self.signal} after {self.deadline:g} s"
        if self.out_of_memory:
            return f"{self.signal}, out of memory"
        return self.signal or f"status {self.status}"


def signal_name(status: int) -> str:
    """The signal that ended a process, by the negative status that ``subprocess`` gives, such as ``SIGKILL``."""
    try:
        return signal.Signals(-status).name
    except ValueError:
        return f"signal {-status}"


class MemoryWatch:
    """Tells whether the kernel killed a process for lack of memory since the object was made.

    It counts those of this process's control group, where the kernel tells them, and those of the machine otherwise.
    """

    def __init__(self) -> None:
        self._before = _killed()

    def ending(self, status: int) -> Ending:
        """The ending of a process that nobody else has killed, with this status."""
        return Ending(status, out_of_memory=status == -signal.SIGKILL and _killed() > self._before)


def _killed() -> int:
    """How many processes the kernel has killed for lack of memory."""
    for path in _counters():
        with suppress(OSError):
            for line in path.read_text().splitlines():
                name, _, number = line.partition(" ")
                if name == "oom_kill":
                    return int(number)
    return 0


def _counters() -> list[Path]:
    paths = [Path("/proc/vmstat")]
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            if line.startswith("0::"):
                group = line.removeprefix("0::/")
                paths.insert(0, Path("/sys/fs/cgroup", group, "memory.events"))
    return paths
