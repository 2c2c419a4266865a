"""Interpreters to run programs and the ``flagos`` command in: this one, or one without torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import flagos


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON that ``--json`` printed."""
        return json.loads(self.out)


class Interpreter:
    """Runs Python programs and the ``flagos`` command in an empty folder with a clean environment."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.python = python
        self.folder = folder

    def run(self, *arguments: str, **variables: str) -> Result:
        """Runs the interpreter; ``variables`` are added to the environment."""
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("FLAGOS_", "PYTHON", "TORCH_", "XDG_"))
        }
        # The same devices on every machine.
        environment["CUDA_VISIBLE_DEVICES"] = ""
        process = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.folder,
            env={**environment, "HOME": str(self.folder), **variables},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Result(process.returncode, process.stdout, process.stderr)

    def flagos(self, *arguments: str, **variables: str) -> Result:
        """Runs the command."""
        return self.run("-m", "flagos", *arguments, **variables)

    def program(self, text: str, **variables: str) -> Result:
        """Runs a program given as text."""
        return self.run("-c", text, **variables)


class FakePackages:
    """A folder of made-up packages, put before everything else on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def package(self, name: str, files: dict[str, str]) -> None:
        """Writes a package."""
        for file, text in files.items():
            path = self.folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def distribution(self, name: str, version: str, entry_points: str = "") -> None:
        """Writes the metadata of an installed distribution."""
        info = self.folder / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir(parents=True)
        metadata_text = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        (info / "METADATA").write_text(metadata_text, encoding="utf-8")
        if entry_points:
            (info / "entry_points.txt").write_text(entry_points, encoding="utf-8")

    def contributor(self, distribution: str, package: str) -> None:
        """Has an installed distribution contribute what it does, from one of its packages alone."""
        entries = metadata.distribution(distribution).read_text("entry_points.txt")
        assert entries
        self.distribution(distribution, flagos.__version__, entries)
        spec = find_spec(package)
        assert spec and spec.origin
        (self.folder / package).symlink_to(Path(spec.origin).parent)


def make_bare_environment(folder: Path) -> Path:
    """A virtual environment with flagos and what it depends on; returns its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    packages = _site_packages(folder)
    (packages / "flagos").symlink_to(Path(flagos.__file__).parent)
    for distribution in _with_dependencies("flagos"):
        if distribution.metadata["Name"] == "flagos":
            _link(packages, Path(str(distribution.locate_file(_info(distribution)))))
            continue
        for entry in {file.parts[0] for file in distribution.files or () if ".." not in file.parts}:
            if entry != "__pycache__":
                _link(packages, Path(str(distribution.locate_file(entry))))
    return folder / "bin" / "python"


def _site_packages(folder: Path) -> Path:
    return next((folder / "lib").glob("python*/site-packages"))


def _with_dependencies(name: str) -> Iterator[metadata.Distribution]:
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        current = waiting.pop()
        if current in seen:
            continue
        seen.add(current)
        try:
            distribution = metadata.distribution(current)
        except metadata.PackageNotFoundError:
            continue  # needed on other platforms or Python versions only
        yield distribution
        for requirement in distribution.requires or ():
            if "extra ==" not in requirement:
                waiting.append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])


def _info(distribution: metadata.Distribution) -> str:
    return next(file.parts[0] for file in distribution.files or () if file.name == "METADATA")


def _link(folder: Path, target: Path) -> None:
    link = folder / target.name
    if target.exists() and not link.exists():
        link.symlink_to(target)


# ---- fixtures


@pytest.fixture
def interpreter(tmp_path: Path) -> Interpreter:
    """This interpreter, with everything that is installed in it."""
    return Interpreter(Path(sys.executable), tmp_path)


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
