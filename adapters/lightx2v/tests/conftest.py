"""Fixtures of the LightX2V adapter's tests."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from adapters.torch.tests.launch import run_script

# Two devices, one for each rank of a test in parallel; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

import flagos

SEAM = Path(__file__).parent / "seam"

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def lightx2v() -> None:
    """Puts LightX2V's double under PLATFORM=flagos into this process."""
    os.environ["PLATFORM"] = "flagos"
    sys.path.insert(0, str(SEAM))
    import lightx2v as double

    assert Path(double.__file__).is_relative_to(SEAM)
    import lightx2v_fl

    lightx2v_fl.activate()  # where the adapter is on the path, but has no entry point


@pytest.fixture
def run_python() -> Run:
    """Runs a script in a fresh interpreter, LightX2V's double on its path; None removes a variable.

    It has imported torch already, except with ``fresh``.
    """

    def run(
        script: str,
        *,
        fails: bool = False,
        fresh: bool = False,
        path: Path | None = None,
        **variables: str | None,
    ) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PLATFORM"}
        paths = [*([str(path)] if path else []), str(SEAM), environment.get("PYTHONPATH", "")]
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        return run_script(script, environment, variables, fails=fails, fresh=fresh)

    return run


@pytest.fixture(autouse=True)
def _fresh_counters() -> None:
    flagos.reset_counters()


@pytest.fixture(params=["cpu", "flagos"])
def device(request: pytest.FixtureRequest) -> Any:
    """The chip's own device, and flagos."""
    return request.param
