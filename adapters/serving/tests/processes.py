"""Processes of an engine, or of its double, for the tests of the engines' adapters."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest


def environment(*paths: str, **variables: str | None) -> dict[str, str]:
    """The environment of a process with these folders on its path; a variable of value None is left out."""
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((*paths, os.environ.get("PYTHONPATH", ""))).strip(os.pathsep),
        "OMP_NUM_THREADS": "1",
        **variables,
    }
    return {name: value for name, value in given.items() if value is not None}


def distribution(folder: Path, name: str, number: str) -> Path:
    """The folder, in which a distribution is installed by name and version alone."""
    info = folder / f"{name}-{number}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n")
    return folder


def run_script(
    script: str, environ: Mapping[str, str], *, fails: bool
) -> subprocess.CompletedProcess[str]:
    """Runs a script in a fresh interpreter, which has to end well, or to fail."""
    done = subprocess.run(
        [sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=120
    )
    if (done.returncode != 0) != fails:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


def reported(
    program: Path, arguments: tuple[Any, ...], environ: Mapping[str, str], timeout: float
) -> dict[str, Any]:
    """What a program reports in its last line that begins with REPORT."""
    plain = [str(each) if isinstance(each, Path) else each for each in arguments]
    given = [each if isinstance(each, str) else json.dumps(each) for each in plain]
    done = subprocess.run(
        [sys.executable, str(program), *given],
        env=environ,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
    if done.returncode != 0 or not lines:
        pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    found: dict[str, Any] = json.loads(lines[-1].removeprefix("REPORT "))
    return found
