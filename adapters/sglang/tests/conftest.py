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

from adapters.serving.tests import processes
from sglang_flagos import releases

# Two devices, one for each rank of a test in parallel; read when a device is first used.
os.environ.setdefault("FLAGOS_HOST_DEVICES", "2")

ROOT = Path(__file__).parents[3]
PROGRAMS = Path(__file__).parent / "programs"
TINY = ROOT / "adapters/vllm/tests/programs"  # the tiny models are the same
SEAM = Path(__file__).parent / "seam"

# The modules of `sglang.srt.models` that the programs serve. SGLang imports all of them in two processes, which takes
# longer than most tests; the test of the server has it so.
MODELS = {"bert", "commandr", "gemma2", "glm4_moe", "llama", "qwen3", "qwen3_moe"}

Run = Callable[..., "subprocess.CompletedProcess[str]"]
Report = Callable[..., dict[str, Any]]


def environment(*paths: str, **variables: str | None) -> dict[str, str]:
    """The environment of a process with SGLang, or its double, on its path; a variable of value None is left out."""
    own: dict[str, str | None] = {
        "SGLANG_PLATFORM": "flagos",
    }
    return processes.environment(*paths, **{**own, **variables})


@pytest.fixture
def release(request: pytest.FixtureRequest) -> releases.Release:
    """The release of SGLang that a test names, or else the one for this torch."""
    given: releases.Release | None = getattr(request, "param", None)
    found = given or releases.of_torch(version("torch"))
    return found or pytest.skip(f"no release of SGLang is for torch {version('torch')}")


@pytest.fixture
def run_python(release: releases.Release, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs a script in a fresh interpreter with the double of SGLang's platform seam.

    A release of another torch than this one finds a distribution with that one's number.
    """
    seam = processes.distribution(tmp_path_factory.mktemp("seam"), "sglang", release.number)
    if releases.minor(version("torch")) != release.torch:
        processes.distribution(seam, "torch", f"{release.torch}.0")

    def run(
        script: str, *, fails: bool = False, path: Path | None = None, **variables: str | None
    ) -> subprocess.CompletedProcess[str]:
        paths = [*([str(path)] if path else []), str(SEAM), str(seam)]
        return processes.run_script(script, environment(*paths, **variables), fails=fails)

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

    modules = {path.stem for path in (Path(sglang_path) / "sglang/srt/models").glob("*.py")}
    others = ",".join(sorted(modules - MODELS - {"__init__", "registry", "utils"}))

    def run(program: str, *arguments: Any, **variables: str) -> dict[str, Any]:
        given = {"SGLANG_DISABLED_MODEL_ARCHS": others, **variables}
        environ = environment(sglang_path, str(PROGRAMS), str(TINY), str(ROOT), **given)
        found = processes.reported(PROGRAMS / program, arguments, environ, timeout=900)
        assert found.get("fallbacks", {}) == {}
        return found

    return run
