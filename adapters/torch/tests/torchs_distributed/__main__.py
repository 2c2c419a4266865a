"""Runs torch's own `DistributedTest` with backend `flagos` and with gloo, on CPU tensors, and compares the ends.

    python -m adapters.torch.tests.torchs_distributed                       # all of it, beside gloo
    python -m adapters.torch.tests.torchs_distributed --alone               # without gloo, as CI does
    python -m adapters.torch.tests.torchs_distributed --only test_barrier --only 'test_all_reduce*'

Fails when a test that gloo passes does not pass, unless `expected.toml` says why, and when what is listed
there passes after all.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

EXPECTED = Path(__file__).with_name("expected.toml")
BACKENDS = ("flagos", "gloo")

Ends = dict[str, dict[str, Any]]


class Worker:
    """A process that runs tests with one backend."""

    def __init__(self, backend: str) -> None:
        command = [sys.executable, "-m", "adapters.torch.tests.torchs_distributed.worker", backend]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )  # fmt: skip
        self.names: list[str] = self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a worker ended with {self._process.wait()}")
        return json.loads(line)

    def run(self, name: str) -> dict[str, Any]:
        """How a test ended."""
        assert self._process.stdin is not None
        print(name, file=self._process.stdin, flush=True)
        end: dict[str, Any] = self._answer()
        return end

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def run(backend: str, patterns: list[str], workers: int) -> Ends:
    """The ends of the tests with one backend, by name."""
    first = Worker(backend)
    names = [
        name
        for name in first.names
        if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)
    ]
    waiting, ends, lock = iter(names), {}, threading.Lock()
    started = time.monotonic()

    def work(worker: Worker) -> None:
        while True:
            with lock:
                name = next(waiting, None)
            if name is None:
                return worker.close()
            end = worker.run(name)
            with lock:
                ends[name] = end
                if len(ends) % 50 == 0 or len(ends) == len(names):
                    took = time.monotonic() - started
                    print(f"{backend}: {len(ends)}/{len(names)} tests, {took:.0f} s", flush=True)

    threads = [threading.Thread(target=work, args=(first,))]
    threads += [threading.Thread(target=lambda: work(Worker(backend))) for _ in range(workers - 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if not names:
        raise SystemExit(f"no test is called {' or '.join(patterns)}")
    if ends.keys() != set(names):
        raise RuntimeError(f"no end of {sorted(set(names) - ends.keys())}")
    return ends


def told(end: dict[str, Any]) -> str:
    """The last line of why a test did not pass."""
    lines = [line for line in end["why"].splitlines() if line.strip()]
    return lines[-1].strip()[:200] if lines else ""


def judge(ours: Ends, theirs: Ends | None, reasons: dict[str, str]) -> list[str]:
    """A line for each thing wrong. Without gloo's ends, a test that gloo may fail too is not counted."""
    wrong = []
    for name, end in ours.items():
        passed = end["end"] == "passed"
        due = end["end"] == "failed" if theirs is None else theirs[name]["end"] == "passed"
        if name in reasons and passed:
            wrong.append(f"{name} passes, and expected.toml says that it cannot: {reasons[name]}")
        elif name not in reasons and due and not passed:
            wrong.append(f"{name} {end['end']}: {told(end)}")
    return wrong


def main() -> int:
    """Runs and compares; the exit status is 1 when something is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[], metavar="PATTERN", help="such tests")
    parser.add_argument("--alone", action="store_true", help="without gloo")
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="tests at once (2)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every end and why")
    options = parser.parse_args()
    reasons: dict[str, str] = tomllib.loads(EXPECTED.read_text(encoding="utf-8"))
    ends = {
        backend: run(backend, options.only, options.workers)
        for backend in (BACKENDS[:1] if options.alone else BACKENDS)
    }
    if options.json is not None:
        options.json.write_text(json.dumps(ends, indent=1) + "\n", encoding="utf-8")
    for backend, tests in ends.items():
        counts = Counter(end["end"] for end in tests.values())
        print(
            f"{backend}: "
            + ", ".join(f"{counts[end]} {end}" for end in ("passed", "failed", "skipped"))
        )
    wrong = judge(ends["flagos"], ends.get("gloo"), reasons)
    if not any(end["end"] == "passed" for end in ends["flagos"].values()):
        wrong.append("no test passed")
    for line in wrong:
        print(f"  {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
