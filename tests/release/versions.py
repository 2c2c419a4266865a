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
DISTRIBUTIONS = (
    *("flagos", "flagos-ascend", "flagos-metax"),
    *(
        "torch-fl",
        "torch-fl-tools",
        "te-fl",
        "lightx2v-fl",
        "flagos-serving",
        "vllm-flagos",
        "sglang-flagos",
        "flagos-trainers",
    ),
)
_HOME = re.compile(rf'^version = "({NUMBER})"', re.MULTILINE)
_COPY = re.compile(rf'(?:^version = "|"(?:{"|".join(DISTRIBUTIONS)})==)({NUMBER})"', re.MULTILINE)
LOCKS = ("Cargo.lock", "core/fuzz/Cargo.lock")
# A package of this repository: it has no source.
_LOCKED = re.compile(rf'^name = "[^"]+"\nversion = "({NUMBER})"\n(?!source)', re.MULTILINE)


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
    return [
        root / "python" / "pyproject.toml",
        *sorted(root.glob("core/vendors/*/pyproject.toml")),
        *sorted(root.glob("adapters/*/pyproject.toml")),
    ]


def copies(root: Path = ROOT) -> Iterator[Copy]:
    """Every copy of the version."""
    for project in projects(root):
        text = project.read_text(encoding="utf-8")
        for match in _COPY.finditer(text):
            line = text.count("\n", 0, match.start(1)) + 1
            yield Copy(str(project.relative_to(root)), line, match[1])
    for lock in LOCKS:
        text = (root / lock).read_text(encoding="utf-8")
        for match in _LOCKED.finditer(text):
            # What is never published has a number that never changes.
            if match[1] != "0.0.0":
                yield Copy(lock, text.count("\n", 0, match.start(1)) + 1, match[1])


def write(new: str, root: Path = ROOT) -> None:
    """Writes the version and its copies. Raises ValueError for what is no version."""
    if re.fullmatch(NUMBER, new) is None:
        raise ValueError(f"{new!r} is no version: give three numbers, such as 0.2.0 or 0.2.0rc1")
    old = version(root)
    patterns = {root / "Cargo.toml": _HOME}
    patterns |= dict.fromkeys(projects(root), _COPY)
    patterns |= {root / lock: _LOCKED for lock in LOCKS}
    for file, pattern in patterns.items():
        text = file.read_text(encoding="utf-8")
        written = pattern.sub(lambda match: match[0].replace(f'{old}"', f'{new}"'), text)
        file.write_text(written, encoding="utf-8")
