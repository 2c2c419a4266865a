"""Runs a program of `ranks/` once a rank, as a launcher would."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

RANKS = Path(__file__).with_name("ranks")


@dataclass
class Rank:
    """How one rank ended."""

    status: int
    output: str


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def launch(
    program: str, *arguments: str, ranks: int = 2, timeout: float = 170, **variables: str
) -> list[Rank]:
    """Every rank's end. Those that still run after `timeout` seconds are killed, with status -9."""
    environment = {name: x for name, x in os.environ.items() if not name.startswith("FLAGOS_")}
    environment |= {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    running = []
    with tempfile.TemporaryDirectory() as folder:
        for rank in range(ranks):
            output = Path(folder, str(rank)).open("w+")  # noqa: SIM115
            process = subprocess.Popen(
                [sys.executable, str(RANKS / program), *arguments],
                env={**environment, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            running.append((process, output))
        ends = []
        for process, output in running:
            try:
                process.wait(timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                timeout = 1
            output.seek(0)
            ends.append(Rank(process.returncode, output.read()))
            output.close()
    return ends


def launch_all_well(program: str, *arguments: str, ranks: int = 2, **variables: str) -> list[str]:
    """The output of every rank, all of which must end with status 0."""
    ends = launch(program, *arguments, ranks=ranks, **variables)
    for rank, end in enumerate(ends):
        assert end.status == 0, f"rank {rank} ended with {end.status}:\n{end.output}"
    return [end.output for end in ends]
