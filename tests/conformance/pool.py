"""Worker processes that survive the operators they run."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .databases import Case
from .worker import PROGRESS_BYTES, READY

_ROOT = Path(__file__).resolve().parents[2]
# By its name from the root, as pytest gives this package a shorter one.
_WORKER = "tests.conformance.worker"
_RECYCLE_BYTES = 6 << 30
_START_LIMIT = 300.0
_STDERR_TAIL = 2000


class _Worker:
    """One worker process and the case it is busy with."""

    def __init__(self, arguments: Sequence[str], directory: Path, number: int) -> None:
        self.case: Case | None = None
        self.started = time.monotonic()
        self.ready = False
        self._buffer = b""
        self._progress = directory / f"progress-{number}"
        self._progress.write_bytes(b"starting")
        self._stderr = directory / f"stderr-{number}"
        self.pipe, child_pipe = os.pipe()
        command = [sys.executable, "-m", _WORKER, *arguments]
        command += ["--results", str(child_pipe), "--progress", str(self._progress)]
        # One thread each: the workers are the parallelism, and sums must not depend on its degree.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                command,
                cwd=_ROOT,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=stderr,
                stderr=stderr,
                pass_fds=(child_pipe,),
            )
        os.close(child_pipe)

    def send(self, case: Case) -> None:
        self.case, self.started = case, time.monotonic()
        assert self.process.stdin is not None
        # A worker that died is noticed by its closed result pipe.
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(json.dumps(case.to_json()).encode() + b"\n")
            self.process.stdin.flush()

    def overdue(self, limit: float) -> bool:
        """Whether the case, or the start, takes longer than it may."""
        return time.monotonic() - self.started > (limit if self.ready else _START_LIMIT)

    def receive(self) -> dict[str, Any] | None:
        """Returns a complete result, or None; raises EOFError when the worker is gone."""
        chunk = os.read(self.pipe, 1 << 16)
        if not chunk:
            raise EOFError
        self._buffer += chunk
        line, newline, rest = self._buffer.partition(b"\n")
        if not newline:
            return None
        self._buffer = rest
        if line.decode() == READY:
            self.ready, self.started = True, time.monotonic()
            return None
        result: dict[str, Any] = json.loads(line)
        return result

    def stop(self, grace: float = 0.0) -> int:
        """Ends the process, after waiting ``grace`` seconds for it to end, and returns its status."""
        try:
            self.process.wait(grace)
        except subprocess.TimeoutExpired:
            self.process.kill()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self.pipe)
        return self.process.wait()

    def stderr_tail(self) -> str:
        return self._stderr.read_text(errors="replace")[-_STDERR_TAIL:]

    def post_mortem(self, kind: str, detail: str) -> dict[str, Any]:
        """The result of a case whose worker did not live to give one."""
        assert self.case is not None
        doing = self._progress.read_bytes()[:PROGRESS_BYTES].decode(errors="replace").strip()
        variant = doing.partition(" ")[0].rstrip(":") or "unknown"
        return {
            **self.case.to_json(),
            "seconds": round(time.monotonic() - self.started, 3),
            "variants": {
                variant: {"samples": 1, "failed": 1, "reference_raised": 0, "ungenerated": 0}
            },
            "failures": [
                {
                    "variant": variant,
                    "sample": None,
                    "inputs": doing,
                    "mismatches": [{"kind": kind, "message": f"{detail} at {doing}"}],
                    "stderr": self.stderr_tail(),
                }
            ],
        }


class Pool:
    """Distributes cases over workers; a crash or a hang costs the case, not the run."""

    def __init__(self, arguments: Sequence[str], jobs: int, time_limit: float) -> None:
        self._arguments = list(arguments)
        self._jobs = jobs
        self._time_limit = time_limit
        self._started = 0
        self._queue: deque[Case] = deque()
        self._workers: list[_Worker] = []
        self._selector = selectors.DefaultSelector()

    def run(self, cases: Iterable[Case]) -> Iterator[dict[str, Any]]:
        """Yields one result for each case, in the order they finish.

        Raises RuntimeError if a worker cannot even start.
        """
        self._queue.extend(cases)
        with tempfile.TemporaryDirectory(prefix="conformance-") as name:
            directory = Path(name)
            try:
                while self._queue or self._workers:
                    while self._queue and len(self._workers) < self._jobs:
                        self._hire(directory)
                    for key, _ in self._selector.select(timeout=1.0):
                        result = self._serve(key.data)
                        if result is not None:
                            yield result
                    for worker in [w for w in self._workers if w.overdue(self._time_limit)]:
                        self._retire(worker)
                        yield worker.post_mortem("timeout", f"no end after {self._time_limit:g} s")
            finally:
                for worker in list(self._workers):
                    self._retire(worker)

    def _hire(self, directory: Path) -> None:
        self._started += 1
        worker = _Worker(self._arguments, directory, self._started)
        self._workers.append(worker)
        self._selector.register(worker.pipe, selectors.EVENT_READ, worker)
        worker.send(self._queue.popleft())

    def _retire(self, worker: _Worker, grace: float = 0.0) -> int:
        self._selector.unregister(worker.pipe)
        self._workers.remove(worker)
        return worker.stop(grace)

    def _serve(self, worker: _Worker) -> dict[str, Any] | None:
        """Takes what a worker says, gives it more to do, and returns a result if there is one."""
        try:
            result = worker.receive()
        except EOFError:
            # The pipe closes a moment before the exit status is known.
            status = self._retire(worker, grace=10.0)
            if not worker.ready:
                raise RuntimeError(f"a worker does not start:\n{worker.stderr_tail()}") from None
            return worker.post_mortem("crash", _describe_status(status))
        if result is None:
            return None
        if result.pop("peak_bytes") > _RECYCLE_BYTES or not self._queue:
            self._retire(worker)
        else:
            worker.send(self._queue.popleft())
        return result


def _describe_status(status: int) -> str:
    if status < 0:
        return f"the process died of {signal.Signals(-status).name}"
    return f"the process exited with status {status}"
