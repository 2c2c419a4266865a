"""Collectives over shared memory beside gloo: `python -m tests.bench.collectives [--write]`.

Runs `flagos bench comm` for 2, 4 and 8 processes and, with `--write`, keeps the tables in docs/benchmarks/.
"""

from __future__ import annotations

import argparse
import datetime
import os
import subprocess
import sys
from pathlib import Path

from tests.bench import machine

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "benchmarks"
# More processes than cores take longer for everything: fewer sizes.
RUNS = {2: "1K,64K,1M,64M", 4: "1K,64K,1M,16M", 8: "1K,64K,1M"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="keep the report in docs/benchmarks")
    options = parser.parse_args()
    parts = []
    for ranks, sizes in RUNS.items():
        load = os.getloadavg()[0]
        command = [
            sys.executable,
            "-m",
            "torch_fl.distributed.bench",
            f"--ranks={ranks}",
            f"--sizes={sizes}",
        ]
        if ranks > 2:
            command.append("--collectives=all_reduce")
        table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(table, flush=True)
        parts.append(f"Load of the machine before: {load:.1f}\n\n```text\n{table}```\n")
    if options.write:
        today = datetime.date.today().isoformat()
        versions = ", ".join(
            f"{name} {x}" for name, x in machine.versions("torch", "flagos").items()
        )
        text = (
            f"# Collectives of processes of one host\n\n{today}, {machine.processor()}, "
            f"{machine.cores()} cores, {versions}.\n\n"
            "The engine `shm` beside gloo, through `torch.distributed`, on float32 tensors of the CPU. Both take\n"
            "turns in the same processes; the last column is the time of gloo over that of flagos, of rounds that\n"
            "stood side by side. Bus bandwidth is nccl-tests' definition. `make bench-comm` measures it again.\n\n"
            + "\n".join(parts)
        )
        path = FOLDER / f"{today}-comm-host.md"
        path.write_text(text)
        print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
