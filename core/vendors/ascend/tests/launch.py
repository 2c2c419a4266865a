"""Ranks as processes over the simulated libraries of Ascend, each on a device of its own."""

from __future__ import annotations

import os
from pathlib import Path

from tests.ranks import ROOT, SHARED, Ended, run

RANKS = Path(__file__).parent / "ranks"
SHARED_RANKS = SHARED
VISIBLE = "ASCEND_RT_VISIBLE_DEVICES"

KNOWN = (
    # Before a thread's first call that needs a context; the vendor expects the refusal.
    "aclrtGetCurrentContext: the thread has no context (refused: 107002)",
    # What DDP's timer asks of a part that did not run in a step.
    "aclrtEventElapsedTime: the end was reached before the start (refused: 107007)",
)


def environment(folder: Path, report: Path, **variables: str) -> dict[str, str]:
    """That of a process over the simulated libraries in a folder."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FLAGOS_", "SIMULATED_", "ASCEND_"))
    }
    packages = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ROOT)]))
    return {
        **kept,
        "FLAGOS_VENDOR": "ascend",
        "LD_LIBRARY_PATH": str(folder),
        # The vendor asks for the driver's devices, unless the runtime is there already.
        "LD_PRELOAD": str(folder / "libascendcl.so"),
        "PYTHONPATH": packages,
        "SIMULATED_ASCEND_REPORT": str(report),
        "OMP_NUM_THREADS": "1",
        **variables,
    }


def launch(
    folder: Path,
    tmp_path: Path,
    program: Path,
    *arguments: str,
    ranks: int = 2,
    timeout: float = 150,
    **variables: str,
) -> Ended:
    """Runs a program once a rank. With ASCEND_RT_VISIBLE_DEVICES="own" each sees its own device alone, as number 0."""
    report = tmp_path / "report"

    def own(rank: int) -> dict[str, str]:
        sees_one = variables.get(VISIBLE) == "own"
        return {VISIBLE: str(rank)} if sees_one else {}

    return run(
        program,
        *arguments,
        folder=tmp_path,
        environment=environment(folder, report, SIMULATED_ASCEND_DEVICES=str(ranks), **variables),
        report=report,
        known=KNOWN,
        own=own,
        ranks=ranks,
        timeout=timeout,
    )
