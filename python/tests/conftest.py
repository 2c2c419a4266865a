"""Processes with a known environment, and interpreters in which torch is absent, broken or old."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from python.tests.interpreters import FakePackages, Interpreter, Result, make_bare_environment

# The configuration of whoever runs the tests must not reach the engine of this process.
for _name in [name for name in os.environ if name.startswith("FLAGOS_")]:
    del os.environ[_name]
# The same devices on every machine.
os.environ["FLAGOS_VENDOR"] = "host"


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """This interpreter, with everything that is installed in it."""
    return Interpreter(Path(sys.executable), tmp_path)


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace of operators that no other test uses: the registry lives as long as the process."""
    return "".join(c if c.isalnum() else "_" for c in request.node.nodeid.split("::", 1)[1])


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An interpreter with flagos and what it depends on: no torch, no adapter."""
    return make_bare_environment(tmp_path_factory.mktemp("bare"))


@pytest.fixture
def without_torch(bare_python: Path, tmp_path: Path) -> Interpreter:
    """An interpreter without torch."""
    return Interpreter(bare_python, tmp_path)


@pytest.fixture
def fakes(tmp_path: Path) -> FakePackages:
    """Made-up packages; give ``PYTHONPATH=str(fakes.folder)`` to the interpreter."""
    folder = tmp_path / "fakes"
    folder.mkdir()
    return FakePackages(folder)


Diagnose = Callable[..., tuple[Result, dict[str, dict[str, Any]]]]


@pytest.fixture
def diagnose(without_torch: Interpreter, fakes: FakePackages) -> Diagnose:
    """Runs the doctor among the made-up packages: the result, and its checks by name."""

    def run(*arguments: str, **variables: str) -> tuple[Result, dict[str, dict[str, Any]]]:
        path = {"PYTHONPATH": str(fakes.folder)}
        result = without_torch.flagos("doctor", "--json", *arguments, **{**path, **variables})
        return result, {check["name"]: check for check in result.json["checks"]}

    return run
