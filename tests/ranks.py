"""Programs of a group of ranks as processes over simulated libraries, as a launcher would start them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapters.torch.tests.launch import free_port

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT / "adapters" / "torch" / "tests" / "ranks"
"""Programs that run on any device."""


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


def run(
    program: Path,
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str],
    report: Path,
    known: Collection[str] = (),
    own: Callable[[int], Mapping[str, str]] = lambda rank: {},
    ranks: int = 2,
    timeout: float = 150,
) -> Ended:
    """Run a program once a rank. Ranks that still run after `timeout` seconds are killed.

    `own` gives a rank's own variables. The simulated libraries write misuses into the file `report`, of which those
    that are `known` do not count. `folder` takes the outputs, and has room for programs that form several groups.
    """
    report.unlink(missing_ok=True)
    shared = {
        **environment,
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "RENDEZVOUS": str(folder),
    }
    processes = []
    for rank in range(ranks):
        command = [sys.executable, str(program), *arguments]
        mine = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), **own(rank)}
        with (folder / f"rank{rank}").open("w") as output:
            process = subprocess.Popen(
                command, env=mine, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
        processes.append(process)
    statuses = []
    for process in processes:
        try:
            statuses.append(process.wait(timeout))
        except subprocess.TimeoutExpired:
            process.kill()
            statuses.append(process.wait())
    outputs = [(folder / f"rank{rank}").read_text() for rank in range(ranks)]
    lines = report.read_text().splitlines() if report.exists() else []
    return Ended(statuses, outputs, [line for line in lines if line not in known])
