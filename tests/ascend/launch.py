"""Ranks as processes over the simulated libraries of Ascend, each on a device of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from adapters.torch.tests.launch import free_port

ROOT = Path(__file__).resolve().parents[2]
RANKS = Path(__file__).parent / "ranks"
SHARED_RANKS = ROOT / "adapters" / "torch" / "tests" / "ranks"

KNOWN = (
    # Before a thread's first call that needs a context; the vendor expects the refusal.
    "aclrtGetCurrentContext: the thread has no context (refused: 107002)",
    # What DDP's timer asks of a part that did not run in a step.
    "aclrtEventElapsedTime: the end was reached before the start (refused: 107007)",
)


@dataclass
class Ended:
    """How the ranks ended: their statuses and outputs, and the misuses that all of them were recorded for."""

    statuses: list[int]
    outputs: list[str]
    misuses: list[str]

    def well(self) -> Ended:
        """Itself, if every rank ended well and used the libraries as their documents allow."""
        for rank, (status, output) in enumerate(zip(self.statuses, self.outputs, strict=True)):
            assert status == 0, f"rank {rank} ended with {status}:\n{output}"
        assert self.misuses == []
        return self


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
    """Runs a program once a rank, as a launcher would. Ranks that still run after `timeout` seconds are killed."""
    report = tmp_path / "report"
    report.unlink(missing_ok=True)
    shared = environment(folder, report, SIMULATED_ASCEND_DEVICES=str(ranks), **variables)
    shared |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"RENDEZVOUS": str(tmp_path)}  # for programs that form several groups
    processes = []
    for rank in range(ranks):
        # Each sees its own device alone, as number 0.
        own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
        if shared.get("ASCEND_RT_VISIBLE_DEVICES") == "own":
            own["ASCEND_RT_VISIBLE_DEVICES"] = str(rank)
        command = [sys.executable, str(program), *arguments]
        with (tmp_path / f"rank{rank}").open("w") as output:
            process = subprocess.Popen(
                command, env=shared | own, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
        processes.append(process)
    statuses = []
    for process in processes:
        try:
            statuses.append(process.wait(timeout))
        except subprocess.TimeoutExpired:
            process.kill()
            statuses.append(process.wait())
    outputs = [(tmp_path / f"rank{rank}").read_text() for rank in range(ranks)]
    lines = report.read_text().splitlines() if report.exists() else []
    return Ended(statuses, outputs, [line for line in lines if line not in KNOWN])
