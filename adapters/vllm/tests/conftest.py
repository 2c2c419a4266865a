"""Fixtures of the vLLM adapter's tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from adapters.serving.tests import processes
from vllm_flagos import releases

# Two devices, one for each rank of a test in parallel; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

PROGRAMS = Path(__file__).parent / "programs"
SHARED = Path(processes.__file__).parent / "programs"
SEAM = Path(__file__).parent / "seam"

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Report = Callable[..., dict[str, Any]]


def environment(*paths: str, **variables: str | None) -> dict[str, str]:
    """The environment of a process with vLLM, or its double, on its path; a variable of value None is left out."""
    own: dict[str, str | None] = {
        "VLLM_PLUGINS": "flagos",
        "VLLM_HOST_IP": "127.0.0.1",  # else vLLM listens on the machine's address
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    return processes.environment(*paths, **{**own, **variables})


@pytest.fixture(scope="session")
def release() -> releases.Release:
    """The release of vLLM for this torch."""
    found = releases.of_torch(version("torch"))
    return found or pytest.skip(f"no release of vLLM is for torch {version('torch')}")


@pytest.fixture
def run_python(release: releases.Release, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a script in a fresh interpreter with the double of vLLM's plugin seam."""
    seam = processes.distribution(tmp_path_factory.mktemp("seam"), "vllm", release.tried)

    def run(
        script: str, *, fails: bool = False, path: Path | None = None, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        paths = [*([str(path)] if path else []), str(SEAM), str(seam)]
        return processes.run_script(script, environment(*paths, **variables), fails=fails)

    return run


@pytest.fixture(scope="session")
def models() -> Any:
    """The folder of the tiny models, and what transformers computes with them."""
    sys.path.insert(0, str(PROGRAMS))
    import tiny

    with tempfile.TemporaryDirectory() as folder:
        tiny.write(Path(folder))
        yield Path(folder)


@pytest.fixture(scope="session")
def expected(models: Path) -> dict[str, Any]:
    """What transformers computes on the CPU, by model."""
    found: dict[str, Any] = json.loads((models / "expected.json").read_text())
    return found


@pytest.fixture(scope="session")
def report(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Runs one of the programs with vLLM, and returns what it reports."""
    cache = str(tmp_path_factory.mktemp("cache"))

    def run(program: str, *arguments: Any, **variables: str) -> dict[str, Any]:
        paths = (os.environ.get("VLLM_PATH", ""), str(SHARED))
        environ = environment(*paths, VLLM_CACHE_ROOT=cache, **variables)
        found = processes.reported(PROGRAMS / program, arguments, environ, timeout=600)
        assert found["fallbacks"] == {}
        return found

    return run
