"""A plugin of pytest for DeepSpeed's tests: chooses cases, and writes how each ended as soon as it has.

Loaded by its name alone, in a pytest over DeepSpeed's checkout, where flagos' own tests are not on the path.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from pathlib import Path

import pytest

# The processes of a test's ranks are forked from one that has these. Otherwise each imports torch: seconds a rank.
multiprocessing.set_forkserver_preload(
    [
        "torch",
        "deepspeed",
        "torch.distributed.fsdp",
        "torch._inductor.select_algorithm",
        "transformers",
    ]
)

_ENDS = Path(os.environ["DEEPSPEEDS_ENDS"])
_MOST = int(os.environ["DEEPSPEEDS_MOST"])


def _write(name: str, end: str, why: str = "") -> None:
    with _ENDS.open("a", encoding="utf-8") as file:
        print(json.dumps({"name": name, "end": end, "why": why}), file=file)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keeps some cases of each test, evenly spaced, and of these the ones that an earlier process did not start."""
    tests: dict[str, list[pytest.Item]] = {}
    for item in items:
        tests.setdefault(item.nodeid.partition("[")[0], []).append(item)
    chosen = []
    for cases in tests.values():
        step = max(1, -(-len(cases) // _MOST)) if _MOST else 1
        chosen += cases[::step]
    started = {json.loads(line)["name"] for line in _ENDS.read_text(encoding="utf-8").splitlines()}
    items[:] = [item for item in chosen if item.nodeid not in started]


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test that starts hangs until it has ended."""
    _write(nodeid, "hangs")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """The end of a test is that of its call, or of what came before it and did not pass."""
    if report.when == "call" or (report.when == "setup" and not report.passed) or report.failed:
        _write(report.nodeid, report.outcome, "" if report.passed else str(report.longrepr))
