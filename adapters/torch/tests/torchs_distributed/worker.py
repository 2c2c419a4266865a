"""Runs tests of torch's `DistributedTest` with one backend: a name on each line of standard input, an end on
each line of standard output, as JSON.

Each test forks its ranks from here, where torch is imported and no group was made.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tempfile
import time
import unittest
from typing import Any

RANKS = 3  # as torch's own runs of gloo
TIMEOUT = 100  # seconds until a test that hangs is given up


class _LikeGloo(str):
    """The name of a backend, which tests that ask for gloo take for it."""

    def __eq__(self, other: object) -> bool:
        return other in ("gloo", str(self))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash("gloo")


def suite(backend: str) -> type[unittest.TestCase]:
    """The tests, as for gloo: what torch leaves out for gloo is left out for every backend.

    torch decides while the classes are made, by names of its own backends; afterwards the name is what
    `init_process_group` is called with.
    """
    os.environ.update(BACKEND="gloo", WORLD_SIZE=str(RANKS), MASTER_ADDR="localhost")
    os.environ["TEMP_DIR"] = tempfile.mkdtemp(prefix="torchs-distributed-")
    os.environ["DISTRIBUTED_TESTS_DEFAULT_TIMEOUT"] = str(TIMEOUT)
    import torch
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test

    common_distributed.TIMEOUT_DEFAULT = TIMEOUT
    distributed_test.BACKEND = _LikeGloo(backend)

    class Tests(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):  # type: ignore[misc]
        def setUp(self) -> None:
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return Tests


def names(tests: type[unittest.TestCase]) -> list[str]:
    """The tests, by name."""
    return unittest.TestLoader().getTestCaseNames(tests)  # type: ignore[return-value]


def run(tests: type[unittest.TestCase], name: str) -> dict[str, Any]:
    """How one test ended: `passed`, `skipped` or `failed`, why, and its seconds."""
    result = unittest.TestResult()
    started = time.monotonic()
    said = io.StringIO()
    keep, sys.stdout = sys.stdout, said
    try:
        tests(name).run(result)
    finally:
        sys.stdout = keep
    end, why = "passed", ""
    if result.errors or result.failures:
        end, why = "failed", (result.errors + result.failures)[0][1]
    elif result.skipped:
        end, why = "skipped", result.skipped[0][1]
    return {"name": name, "end": end, "why": why, "seconds": time.monotonic() - started}


def main(backend: str) -> None:
    """Works until there is no other name."""
    tests = suite(backend)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the ranks print
    print(json.dumps(names(tests)), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(run(tests, line.strip())), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
