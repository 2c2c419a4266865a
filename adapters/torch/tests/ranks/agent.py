"""Runs a program of two ranks under torchrun's agent, which starts them again once. Run as one rank.

The agent is what the command `torchrun` runs; here its ranks are forks of a process that has imported torch.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

from torch.distributed.launcher.api import LaunchConfig, elastic_launch


def rank_process(program: str, *arguments: str) -> None:
    sys.argv = [program, *arguments]
    runpy.run_path(program, run_name="__main__")


def main() -> None:
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        os.environ.pop(name, None)
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        max_restarts=1,
        monitor_interval=0.05,
        start_method="fork",
        run_id="elastic",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
    )
    program = str(Path(__file__).parent / sys.argv[1])
    elastic_launch(config, rank_process)(program, *sys.argv[2:])


if __name__ == "__main__":
    main()
