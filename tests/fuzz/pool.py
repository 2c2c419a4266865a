"""The worker of a session: a process that goes on when a program ends it."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from flagos.processes.child import Child

_ROOT = Path(__file__).resolve().parents[2]
_STDERR_TAIL = 1500
_PATIENCE = 60.0  # seconds that a worker with nothing left to do gets to end


class Died(Exception):
    """A program ended its process, or took too long; ``begun`` are the steps that it had begun."""

    def __init__(self, how: str, begun: list[dict[str, Any]], said: str) -> None:
        super().__init__(how)
        self.how, self.begun, self.said = how, begun, said


class Worker:
    """Runs programs in a process that is forked again when one does not survive."""

    def __init__(self, plugin: str) -> None:
        self._directory = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._journal = Path(self._directory.name) / "journal"
        self._stderr = Path(self._directory.name) / "stderr"
        pipe, child_pipe = os.pipe()
        command = [sys.executable, "-m", "tests.fuzz.worker", "--results", str(child_pipe)]
        command += ["--journal", str(self._journal), "--plugin", plugin]
        with self._stderr.open("wb") as stderr:
            self._process = Child(
                command,
                folder=_ROOT,
                # Sums must not depend on how many threads there are.
                environment={**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(child_pipe,),
            )
        os.close(child_pipe)
        self._results = os.fdopen(pipe)
        self._line()

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request; raises Died."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = self._line()
        if "died" in answer:
            begun = [json.loads(line) for line in self._journal.read_text().splitlines()]
            raise Died(answer["died"], begun, self._said())
        return answer

    def _line(self) -> Any:
        line = self._results.readline()
        if not line:
            raise RuntimeError(f"the worker is gone:\n{self._said()}")
        return json.loads(line)

    def _said(self) -> str:
        return self._stderr.read_text(errors="replace")[-_STDERR_TAIL:]

    def close(self) -> None:
        """Ends the process, which has nothing left to do."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait(_PATIENCE)
        self._process.end()
        self._results.close()
        self._directory.cleanup()
