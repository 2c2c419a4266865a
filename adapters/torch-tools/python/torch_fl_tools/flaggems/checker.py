"""A process that judges one call after another for another process, and may die of one.

python -m torch_fl_tools.flaggems.checker READ WRITE

reads calls, as records have them, from the file descriptor READ, one per line, and writes its verdicts to WRITE.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from typing import IO, Any

from flagos.processes.child import Child
from torch_fl.flaggems import pack_in_use
from torch_fl_tools.records import facts, program

_SECONDS = 180.0  # for one call, with the start, and with all configurations of its kernels


class Checker:
    """The other end. Not for several threads at once."""

    def __init__(self) -> None:
        self._process: Child | None = None
        self._owner = 0
        self._calls: IO[bytes] | None = None
        self._answers = -1

    def judge(self, call: facts.Call, configuration: int | None = None) -> tuple[str | None, str]:
        """The verdict of `recorded.judging.judge` by all configurations or one; FAILED if it dies or is late."""
        if self._process is None or self._owner != os.getpid() or not self._process.running():
            self._start()
        assert self._calls is not None and self._process is not None
        with suppress(BrokenPipeError):  # its end is reported below
            line = {**facts.to_json(call), "configuration": configuration}
            self._calls.write(json.dumps(line).encode() + b"\n")
            self._calls.flush()
        answer, until = b"", time.monotonic() + _SECONDS
        while not answer.endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._answers], [], [], left)[0]:
                self.close()
                return "FAILED", f"it took longer than {_SECONDS:.0f} s"
            if not (more := os.read(self._answers, 1 << 16)):
                ending = self._process.wait()
                self.close()
                return "FAILED", f"the process that tried it ended with {ending}"
            answer += more
        verdict: dict[str, Any] = json.loads(answer)
        if verdict["lost"]:
            self.close()
        return verdict["verdict"], verdict["why"]

    def _start(self) -> None:
        self.close()
        theirs, ours = os.pipe()
        answers, given = os.pipe()
        environment = {**os.environ, "FLAGOS_FLAGGEMS": "off"}
        for name in (program.FOLDER, program.META, pack_in_use.PACK):
            environment.pop(name, None)
        command = [sys.executable, "-m", __name__, str(theirs), str(given)]
        self._process = Child(
            command, environment=environment, pass_fds=(theirs, given), stdout=subprocess.DEVNULL
        )
        os.close(theirs)
        os.close(given)
        self._calls, self._answers, self._owner = os.fdopen(ours, "wb"), answers, os.getpid()

    def close(self) -> None:
        """End the process. In a fork, forget it."""
        if self._process is None:
            return
        if self._owner == os.getpid():
            self._process.end()
        assert self._calls is not None
        with suppress(BrokenPipeError):
            self._calls.close()
        os.close(self._answers)
        self._process = None


def _serve(calls: IO[str], answers: IO[str]) -> None:
    from torch_fl import launcher
    from torch_fl.flaggems import package
    from torch_fl_tools.flaggems.recorded.judging import judge

    package.load_before_forking()  # what it tunes is not kept
    launcher.uninstall()  # it keeps the kernel of the first configuration
    for line in calls:
        request = json.loads(line)
        number = request["configuration"]
        outcome = judge(facts.from_json(request), every_config=number is None, first=number or 0)
        answer = {"verdict": outcome.verdict, "why": outcome.why, "lost": outcome.lost}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        if outcome.lost:
            return


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of the program; its end is that of the pipe
    _serve(os.fdopen(int(sys.argv[1])), os.fdopen(int(sys.argv[2]), "w"))
