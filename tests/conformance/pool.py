"""Cases distributed over worker processes; a crash or a hang costs the case, not the run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from flagos.processes.pool import TaskOutcome
from torch_fl_tools.comparing import tasks

from .databases import Case
from .worker import Checks, has_memory_left

_START_LIMIT = 300.0  # seconds, of a worker's start and of a single call
_STEP_LENGTH = 512


def run(
    checks: Checks, cases: Iterable[Case], jobs: int, time_limit: float
) -> Iterator[dict[str, Any]]:
    """Yields one result for each case, in the order they finish; a case may take `time_limit` seconds.

    Raises RuntimeError if a worker cannot even start.
    """
    running = tasks.run(
        [json.dumps(case.to_json()) for case in cases],
        checks,
        jobs,
        step_seconds=max(_START_LIMIT, time_limit),
        task_seconds=time_limit,
        context="spawn",
        reuse=has_memory_left,
        capture_output=True,
    )
    with _one_thread(), closing(running) as all_ended:
        for ended in all_ended:
            if ended.result is not None:
                yield ended.result
            elif not ended.step:
                raise RuntimeError(f"a worker does not start: {ended.failure}\n{ended.output}")
            else:
                yield _post_mortem(ended)


@contextmanager
def _one_thread() -> Iterator[None]:
    """One thread in each worker: these are the parallelism, and sums must not depend on its degree."""
    variables = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _post_mortem(ended: TaskOutcome) -> dict[str, Any]:
    """The result of a case whose worker did not live to give one."""
    doing = ended.step[:_STEP_LENGTH]
    variant = doing.partition(" ")[0].rstrip(":") or "unknown"
    kind = "timeout" if ended.late else "crash"
    return {
        **json.loads(ended.name),
        "seconds": round(ended.seconds, 3),
        "variants": {variant: {"samples": 1, "failed": 1, "reference_raised": 0, "ungenerated": 0}},
        "failures": [
            {
                "variant": variant,
                "sample": None,
                "inputs": doing,
                "mismatches": [{"kind": kind, "message": f"{ended.failure} at {doing}"}],
                "stderr": ended.output,
            }
        ],
    }
