"""Interpreters to run programs and the ``flagos`` command in: this one, or one without torch."""

from __future__ import annotations

import json
import os
import re
import subprocess
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import flagos


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What ``--json`` printed."""
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
