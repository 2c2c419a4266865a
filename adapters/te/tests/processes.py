"""Programs in an interpreter of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "adapters" / "te" / "examples"


def run(program: str | Path, *paths: Path, fails: bool = False, **variables: str) -> str:
    """What a program (text, or a file) prints, standard error included.

    ``paths`` come first on the module path. Variables of flagos and TE-FL are those given, and no others.
    """
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TE_FL_", "TEFL_", "FLAGOS_", "NVTE_"))
    }
    search = [*map(str, paths), os.environ.get("PYTHONPATH", "")]
    environment = {**kept, **variables, "PYTHONPATH": os.pathsep.join(filter(None, search))}
    # `import torch` alone must not bring a device into it.
    environment.setdefault("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    command = [str(program)] if isinstance(program, Path) else ["-c", textwrap.dedent(program)]
    done = subprocess.run(
        [sys.executable, *command],
        env=environment,
        cwd="/",
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout
    return done.stdout
