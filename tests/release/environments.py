"""Tries wheels as a user gets them: in a fresh environment for each torch, without this checkout.

The demo, which needs transformers, trains on the device and compares with the CPU. An environment takes some 5 GB
and 3 minutes, and is removed afterwards.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from tests.release.versions import ROOT

DISTRIBUTIONS = ("flagos", "flagos_ascend", "flagos_metax", "torch_fl")


def wheels_in(folder: Path) -> list[Path]:
    """One wheel of the core, of each chip and of the adapter, for this processor. Raises ValueError otherwise."""
    found = []
    for name in DISTRIBUTIONS:
        fitting = sorted(folder.glob(f"{name}-*{platform.machine()}.whl"))
        if len(fitting) != 1:
            raise ValueError(
                f"{folder} has {len(fitting)} wheels {name}-*{platform.machine()}.whl, and one is needed: make dist"
            )
        found += fitting
    return found


def failures(folder: Path, torches: Iterable[str], steps: int) -> list[str]:
    """What went wrong, by torch (``2.11``). Prints what it does and how long it took."""
    wheels = wheels_in(folder)
    wrong = []
    for torch in torches:
        constraints = ROOT / f"requirements/torch-{torch}.txt"
        if not constraints.exists():
            known = sorted(
                path.stem.removeprefix("torch-") for path in constraints.parent.glob("torch-*.txt")
            )
            raise ValueError(f"flagos is for no torch {torch}; it is for {', '.join(known)}")
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as home:
            done = _demo(Path(home), wheels, constraints, steps)
        took = f"{time.monotonic() - began:.0f} s"
        if done.returncode == 0:
            print(f"torch {torch}: {done.stdout.strip().splitlines()[-1]} ({took})", flush=True)
        else:
            print(f"torch {torch}: failed ({took})\n{done.stdout}{done.stderr}", flush=True)
            wrong.append(f"the demo fails with torch {torch}")
    return wrong


def _demo(
    home: Path, wheels: list[Path], constraints: Path, steps: int
) -> subprocess.CompletedProcess[str]:
    """Runs the demo in an environment in `home`, or returns the step that failed before it."""
    # Neither this checkout nor the environment that runs this may be found.
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "FLAGOS", "VIRTUAL_ENV"))
    }
    python = home / "bin/python"
    commands: list[list[str | Path]] = [
        [sys.executable, "-m", "venv", home],
        [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "-c",
            constraints,
            "torch",
            "transformers",
            *wheels,
        ],
        [home / "bin/flagos", "doctor"],
        [home / "bin/flagos", "demo", "--steps", str(steps)],
    ]
    for command in commands:
        done = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True)
        if done.returncode != 0:
            break
    return done
