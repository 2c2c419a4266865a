"""NVIDIA's compute-sanitizer over FlagGems' run of a call, in a process of its own, each tensor allocated alone."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from flagos.processes import child
from torch_fl_tools.records import facts, files
from torch_fl_tools.records.facts import Call

TOOL = "compute-sanitizer"
_FOUND = 86  # its exit status when it found an error
_SECONDS = 110.0


def missing() -> str | None:
    """Why it cannot be used; None where it can."""
    if shutil.which(TOOL) is None:
        return f"{TOOL} is not on PATH: it comes with the CUDA toolkit, or leave out --sanitizer"
    return None


def check(call: Call) -> str | None:
    """The first error that it finds in FlagGems' run of a call; None without any.

    Raises RuntimeError if the process fails otherwise or takes too long.
    """
    with tempfile.TemporaryDirectory(prefix="sanitizer-") as folder:
        path = Path(folder) / "one.rec"
        files.write(path, [call])
        command = [TOOL, "--tool", "memcheck", "--error-exitcode", str(_FOUND), sys.executable]
        command += ["-m", "torch_fl_tools.flaggems.recorded.sanitizer", str(path)]
        environment = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
        done = child.run(command, environment=environment, deadline=_SECONDS)
    if done.ending.deadline is None and done.ending.status == _FOUND:
        errors = [
            line.strip("= ") for line in done.output.splitlines() if line.startswith("=========")
        ]
        places = [
            line for line in errors if "Invalid" in line or " at " in line or "Address" in line
        ]
        return f"{TOOL}: " + "; ".join(places[:3] or errors[:3] or ["an error without words"])
    if done.ending.status != 0:
        raise RuntimeError(f"{TOOL} ended with {done.ending}: {done.errors.strip()[-300:]}")
    return None


def main(arguments: list[str]) -> int:
    """Judge the calls of a record without red zones, which would hide what is beside a tensor from the tool."""
    from torch_fl import launcher
    from torch_fl.flaggems import package
    from torch_fl_tools.flaggems.recorded.judging import judge

    package.load_before_forking()
    launcher.uninstall()
    for call in files.read(Path(arguments[0])):
        outcome = judge(call, red_zones=False)
        print(
            json.dumps(
                {"call": facts.to_json(call), "verdict": outcome.verdict, "why": outcome.why}
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
