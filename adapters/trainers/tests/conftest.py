"""Processes with the doubles of the trainers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SEAM = Path(__file__).with_name("seam")


@pytest.fixture
def process(tmp_path: Path) -> Callable[..., Any]:
    """Runs a program with the doubles on its path. Returns what it prints last, read as JSON, or the text of its error.

    ``versions`` are the distributions that the program finds installed.
    """

    def run(
        program: str, versions: dict[str, str] | None = None, fails: bool = False, **variables: str
    ) -> Any:
        for name, version in (versions or {}).items():
            folder = tmp_path / f"{name}-{version}.dist-info"
            folder.mkdir()
            (folder / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
        kept = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("DS_", "ACCELERATE_", "FLAGOS_MEGATRON"))
        }
        path = os.pathsep.join(map(str, (tmp_path, SEAM)))
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**kept, "PYTHONPATH": path, **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr
        return done.stderr if fails else json.loads(done.stdout.splitlines()[-1])

    return run
