"""Whether a CUDA program notices that flagos is installed.

    python -m tests.gpu.unnoticed [--json FILE] [--control] [PART ...]

`tests.gpu.cuda_program` runs twice without flagos and once beside it, in one process and, with a rank per
device, under torchrun. A line that both runs without flagos print has to be printed beside it. `--control`
asks for flagos in the last run, which has to be noticed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_PROGRAM = "tests.gpu.cuda_program"


def _environment(beside: bool) -> dict[str, str]:
    """The program's environment: beside flagos, or without its wheels on PYTHONPATH and its entry point."""
    environment = {
        **os.environ,
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "TOKENIZERS_PARALLELISM": "false",
    }
    if not beside:
        folders = environment.get("PYTHONPATH", "").split(os.pathsep)
        kept = [folder for folder in folders if not (Path(folder) / "torch_fl").is_dir()]
        environment["PYTHONPATH"] = os.pathsep.join(kept)
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    return environment


def _lines(beside: bool, ranks: int, control: bool, parts: list[str], seconds: float) -> list[str]:
    """The output of the program, in one process (`ranks` 0) or under torchrun."""
    command = [sys.executable, "-m", _PROGRAM, *parts]
    if ranks:
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
        command = [sys.executable, *launcher, "-m", _PROGRAM, *parts]
    with tempfile.TemporaryDirectory() as folder:
        environment = {**_environment(beside), "PROGRAM_FOLDER": folder}
        if control:
            environment["FLAGOS_ACCELERATOR"] = "flagos"
        done = subprocess.run(
            command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=seconds
        )
    lines = done.stdout.splitlines()
    if done.returncode != 0:
        lines.append(f"EXIT {done.returncode} {done.stderr.strip().splitlines()[-1:]}")
    return lines


def compare(first: list[str], second: list[str], beside: list[str]) -> tuple[int, list[str]]:
    """How many lines are the same without flagos, and those that differ beside it, as a diff."""
    stable = [line for line in first if line in set(second)]
    unstable = {line.split(" ")[0] for line in first if line not in set(second)}
    missing = [f"- {line}" for line in stable if line not in set(beside)]
    known = set(first) | set(second)
    new = [
        f"+ {line}" for line in beside if line not in known and line.split(" ")[0] not in unstable
    ]
    return len(stable), missing + new


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "parts", nargs="*", metavar="PART", help="parts of the program; all by default"
    )
    parser.add_argument(
        "--control", action="store_true", help="ask for flagos, which has to be noticed"
    )
    parser.add_argument("--seconds", type=float, default=300, help="time limit of each run")
    parser.add_argument("--json", type=Path, help="where to write what was printed")
    options = parser.parse_args()
    import torch

    devices = torch.cuda.device_count()
    if devices == 0:
        parser.error("there is no CUDA device here")
    report, failed = {}, False
    for ranks in (0, devices):
        runs = [
            _lines(beside, ranks, beside and options.control, options.parts, options.seconds)
            for beside in (False, False, True)
        ]
        same, different = compare(*runs)
        where = f"{ranks} ranks" if ranks else "one process"
        raised = sum(" RAISED " in line or line.startswith("EXIT") for line in runs[0])
        print(
            f"{where}: {same} lines without flagos ({raised} of them errors), {len(different)} differ beside it"
        )
        for line in different:
            print(f"  {line}")
        failed |= bool(different) or not same
        report[where] = {
            "without": runs[0],
            "again": runs[1],
            "beside": runs[2],
            "different": different,
        }
    if options.json:
        options.json.write_text(json.dumps(report, indent=1))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
