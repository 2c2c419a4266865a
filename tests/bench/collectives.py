"""Collectives over shared memory beside gloo: `python -m tests.bench.collectives [--write]`.

Runs `flagos bench comm` for 2, 4 and 8 processes, and the engine without torch and Python for 2, and, with
`--write`, enters the tables into docs/benchmarks/comm.md.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from tests.bench import history, machine

ROOT = Path(__file__).resolve().parents[2]
BENCH = [sys.executable, "-m", "torch_fl.distributed.bench"]
# More processes than cores take longer for everything: fewer sizes.
RUNS = {2: "1K,64K,1M,64M", 4: "1K,64K,1M,16M", 8: "1K,64K,1M"}


ENGINE = ["cargo", "run", "--quiet", "--release", "--locked", "-p", "flagos-comm"]
ENGINE += ["--example", "all_reduce", "--", "2", "1024,65536"]
ENGINE_ROUNDS = 3


def medians(command: list[str], side: str = "") -> dict[int, float]:
    """Microseconds by bytes that a benchmark prints as JSON."""
    text = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout
    rows = json.loads(text)["results"]
    return {row["bytes"]: (row["us"][side] if side else row["us"])["median"] for row in rows}


def engine_alone() -> str:
    """The engine, called from Rust, and gloo through torch.distributed, by turns."""
    gloo = [*BENCH, "--ranks=2", "--sizes=1K,64K", "--collectives=all_reduce", "--json"]
    rounds = [(medians(ENGINE), medians(gloo, "gloo")) for _ in range(ENGINE_ROUNDS)]
    lines = ["2 ranks, float32, the engine alone: called from Rust, without torch and Python"]
    lines.append(f"{'all_reduce':15} {'engine us':>12} {'gloo us':>12}  times faster (min, max)")
    for size in rounds[0][0]:
        ours, theirs = ([side[size] for side in sides] for sides in zip(*rounds, strict=True))
        ratios = sorted(b / a for a, b in zip(ours, theirs, strict=True))
        lines.append(
            f"{size >> 10:11} KiB {statistics.median(ours):12.2f} {statistics.median(theirs):12.1f}"
            f"  {statistics.median(ratios):.1f} ({ratios[0]:.1f}, {ratios[-1]:.1f})"
        )
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--write", action="store_true", help="keep the report in docs/benchmarks")
    options = parser.parse_args()
    parts = []
    for ranks, sizes in RUNS.items():
        load = os.getloadavg()[0]
        command = [*BENCH, f"--ranks={ranks}", f"--sizes={sizes}"]
        if ranks > 2:
            command.append("--collectives=all_reduce")
        table = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        print(table, flush=True)
        parts.append(f"Load of the machine before: {load:.1f}\n\n```text\n{table}```\n")
    load = os.getloadavg()[0]
    table = engine_alone()
    print(table, flush=True)
    parts.append(f"Load of the machine before: {load:.1f}\n\n```text\n{table}```\n")
    if options.write:
        today = datetime.date.today().isoformat()
        versions = ", ".join(
            f"{name} {x}" for name, x in machine.versions("torch", "flagos").items()
        )
        text = (
            f"## {today}: processes of one host\n\n{machine.processor()}, "
            f"{machine.cores()} cores, {versions}.\n\n"
            "The engine `shm` beside gloo, through `torch.distributed`, on float32 tensors of the CPU. Both take\n"
            "turns in the same processes; the last column is the time of gloo over that of flagos, of rounds that\n"
            "stood side by side. Bus bandwidth is nccl-tests' definition. `make bench-comm` measures it again.\n\n"
            + "\n".join(parts)
        )
        path = history.keep("comm", text)
        print(f"kept in {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
