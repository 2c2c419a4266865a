"""The version: ``Cargo.toml`` has it for every crate and for the wheels that maturin builds.

A ``pyproject.toml`` cannot read it from there, so the wheels of Python alone, and the requirements of one distribution
on another, have copies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBER = r"\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?"
DISTRIBUTIONS = ("flagos", "torch-fl", "te-fl", "lightx2v-fl", "vllm-flagos")
_HOME = re.compile(rf'^version = "({NUMBER})"', re.MULTILINE)
_COPY = re.compile(rf'(?:^version = "|"(?:{"|".join(DISTRIBUTIONS)})==)({NUMBER})"', re.MULTILINE)


@dataclass(frozen=True)
class Copy:
    """A place that has the version, too."""

    file: str
    line: int
    version: str


def version(root: Path = ROOT) -> str:
    """The version of the workspace."""
    found = _HOME.search((root / "Cargo.toml").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError("Cargo.toml has no version of the workspace")
    return found[1]


def projects(root: Path = ROOT) -> list[Path]:
    """The pyproject.toml of every distribution."""
    return [root / "python" / "pyproject.toml", *sorted(root.glob("adapters/*/pyproject.toml"))]


def copies(root: Path = ROOT) -> Iterator[Copy]:
    """Every copy of the version."""
    for project in projects(root):
        text = project.read_text(encoding="utf-8")
        for match in _COPY.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            yield Copy(str(project.relative_to(root)), line, match[1])


def write(new: str, root: Path = ROOT) -> None:
    """Writes the version and its copies. Raises ValueError for what is no version."""
    if re.fullmatch(NUMBER, new) is None:
        raise ValueError(f"{new!r} is no version: give three numbers, such as 0.2.0 or 0.2.0rc1")
    for file, pattern in ((root / "Cargo.toml", _HOME), *((p, _COPY) for p in projects(root))):
        text = file.read_text(encoding="utf-8")
        file.write_text(pattern.sub(lambda m: m[0].replace(m[1], new), text), encoding="utf-8")
