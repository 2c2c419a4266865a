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

from vllm_flagos import releases

# Two devices, one for each rank of a test in parallel; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

PROGRAMS = Path(__file__).parent / "programs"
SEAM = Path(__file__).parent / "seam"

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Report = Callable[..., dict[str, Any]]


def environment(*paths: str, **variables: str | None) -> dict[str, str]:
    """The environment of a process with vLLM, or its double, on its path; a variable of value None is left out."""
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((*paths, os.environ.get("PYTHONPATH", ""))).strip(os.pathsep),
        "VLLM_PLUGINS": "flagos",
        "VLLM_HOST_IP": "127.0.0.1",  # else vLLM listens on the machine's address
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
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


@pytest.fixture(scope="session")
def release() -> releases.Release:
    """The release of vLLM for this torch."""
    found = releases.of_torch(version("torch"))
    return found or pytest.skip(f"no release of vLLM is for torch {version('torch')}")


@pytest.fixture
def run_python(release: releases.Release, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a script in a fresh interpreter with the double of vLLM's plugin seam."""
    seam = distribution(tmp_path_factory.mktemp("seam"), "vllm", release.tried)

    def run(
        script: str, *, fails: bool = False, path: Path | None = None, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        paths = [*([str(path)] if path else []), str(SEAM), str(seam)]
        done = subprocess.run(
            [sys.executable, "-c", script],
            env=environment(*paths, **variables),
            capture_output=True,
            text=True,
            timeout=120,
        )
        if (done.returncode != 0) != fails:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

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
        given = [a if isinstance(a, str) else json.dumps(a) for a in map(_plain, arguments)]
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / program), *given],
            env=environment(os.environ.get("VLLM_PATH", ""), VLLM_CACHE_ROOT=cache, **variables),
            capture_output=True,
            text=True,
            timeout=600,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
        if done.returncode != 0 or not lines:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("REPORT "))
        assert found["fallbacks"] == {}
        return found

    return run


def _plain(argument: Any) -> Any:
    return str(argument) if isinstance(argument, Path) else argument
