"""The worker process of a session, and what became of programs that it did not survive."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
_START_LIMIT = 300.0
_STDERR_TAIL = 1500


class Died(Exception):
    """The worker is gone, or was ended because it took too long; ``steps`` is what it had begun."""

    def __init__(self, how: str, steps: list[dict[str, Any]], said: str) -> None:
        super().__init__(how)
        self.how, self.steps, self.said = how, steps, said


class Worker:
    """One process that runs programs; started on the first request, and again after a death."""

    def __init__(self, plugin: str, limit: float = 60.0) -> None:
        self.plugin, self.limit = plugin, limit
        self._process: subprocess.Popen[bytes] | None = None
        self._directory = tempfile.TemporaryDirectory(prefix="fuzz-")
        self._journal = Path(self._directory.name) / "journal"
        self._stderr = Path(self._directory.name) / "stderr"
        self._pipe, self._buffer, self._served = -1, b"", 0

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The worker's answer; raises Died."""
        if self._process is None or self._served >= 300:
            self.close()
            self._start()
        assert self._process is not None and self._process.stdin is not None
        self._served += 1
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()
        result: dict[str, Any] = self._receive(self.limit)
        return result

    def _start(self) -> None:
        self._pipe, child_pipe = os.pipe()
        self._buffer, self._served = b"", 0
        command = [sys.executable, "-m", "tests.fuzz.worker", "--results", str(child_pipe)]
        command += ["--journal", str(self._journal), "--plugin", self.plugin]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with self._stderr.open("wb") as stderr:
            self._process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(child_pipe,),
            )
        os.close(child_pipe)
        self._receive(_START_LIMIT)

    def _receive(self, limit: float) -> Any:
        end = time.monotonic() + limit
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self._pipe], [], [], max(0.0, end - time.monotonic()))
            chunk = os.read(self._pipe, 1 << 16) if ready else None
            if not chunk:
                raise self._died(hung=chunk is None)
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def _died(self, hung: bool) -> Died:
        assert self._process is not None
        if hung:
            self._process.kill()
        status = self._process.wait()
        self.close()
        how = f"took more than {self.limit:.0f} s" if hung else f"ended with status {status}"
        steps = []
        if self._journal.exists():
            steps = [json.loads(line) for line in self._journal.read_text().splitlines()]
        return Died(how, steps, self._stderr.read_text(errors="replace")[-_STDERR_TAIL:])

    def close(self) -> None:
        """Ends the process, which has nothing left to do."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._process.wait()
        os.close(self._pipe)
        self._process = None
