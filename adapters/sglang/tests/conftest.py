"""Fixtures of the SGLang adapter's tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from sglang_flagos import releases

# Two devices, one for each rank of a test in parallel; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(__file__).parent / "programs"
TINY = ROOT / "adapters/vllm/tests/programs"  # the tiny models are the same
SEAM = Path(__file__).parent / "seam"

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Report = Callable[..., dict[str, Any]]


def environment(*paths: str, **variables: str | None) -> dict[str, str]:
    """The environment of a process with SGLang, or its double, on its path; a variable of value None is left out."""
    given = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((*paths, os.environ.get("PYTHONPATH", ""))).strip(os.pathsep),
        "SGLANG_PLATFORM": "flagos",
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
    """The release of SGLang for this torch."""
    found = releases.of_torch(version("torch"))
    return found or pytest.skip(f"no release of SGLang is for torch {version('torch')}")


@pytest.fixture
def run_python(release: releases.Release, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a script in a fresh interpreter with the double of SGLang's platform seam."""
    seam = distribution(tmp_path_factory.mktemp("seam"), "sglang", release.number)

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
def sglang_path() -> str:
    """The folder with SGLang, for tests that have the mark ``sglang``."""
    path = os.environ.get("SGLANG_PATH", "")
    if not (Path(path) / "sglang").is_dir():
        pytest.skip("SGLANG_PATH names no folder with SGLang: make test-sglang")
    return path


@pytest.fixture(scope="session")
def models(sglang_path: str) -> Iterator[Path]:
    """The folder of the tiny models, and what transformers computes with them."""
    sys.path[:0] = [str(PROGRAMS), str(TINY)]
    import more

    with tempfile.TemporaryDirectory() as folder:
        more.write(Path(folder))
        yield Path(folder)


@pytest.fixture(scope="session")
def expected(models: Path) -> dict[str, Any]:
    """What transformers computes on the CPU, by model."""
    found: dict[str, Any] = json.loads((models / "expected.json").read_text())
    return found


@pytest.fixture(scope="session")
def report(sglang_path: str) -> Report:
    """Runs one of the programs with SGLang, and returns what it reports."""

    def run(program: str, *arguments: Any, **variables: str) -> dict[str, Any]:
        given = [a if isinstance(a, str) else json.dumps(a) for a in map(_plain, arguments)]
        done = subprocess.run(
            [sys.executable, str(PROGRAMS / program), *given],
            env=environment(sglang_path, str(PROGRAMS), str(TINY), str(ROOT), **variables),
            capture_output=True,
            text=True,
            timeout=900,
        )
        lines = [line for line in done.stdout.splitlines() if line.startswith("REPORT ")]
        if done.returncode != 0 or not lines:
            pytest.fail(f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
        found: dict[str, Any] = json.loads(lines[-1].removeprefix("REPORT "))
        assert found.get("fallbacks", {}) == {}
        return found

    return run


def _plain(argument: Any) -> Any:
    return str(argument) if isinstance(argument, Path) else argument
