"""One version everywhere, changelogs that know it, and a release that is refused without them."""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.release import changelogs, environments, versions

ROOT = versions.ROOT


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """The files that have the version, to be written to."""
    locks = [ROOT / lock for lock in versions.LOCKS]
    for file in (ROOT / "Cargo.toml", *versions.projects(), *locks):
        copy = tmp_path / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, copy)
    return tmp_path


def test_every_copy_of_the_version_is_that_of_the_workspace() -> None:
    found = list(versions.copies())
    assert {copy.file for copy in found} >= {*versions.LOCKS, "python/pyproject.toml"}
    assert len(found) >= 20
    assert [copy for copy in found if copy.version != versions.version()] == []


def test_a_written_version_is_everywhere(copied: Path) -> None:
    versions.write("12.34.56", copied)
    assert versions.version(copied) == "12.34.56"
    assert {copy.version for copy in versions.copies(copied)} == {"12.34.56"}
    old = re.escape(versions.version())
    left = [p for p in versions.projects(copied) if re.search(f'"{old}"|=={old}"', p.read_text())]
    assert left == []


def test_a_copy_that_differs_is_found(copied: Path) -> None:
    project = copied / "adapters" / "vllm" / "pyproject.toml"
    project.write_text(project.read_text().replace(f"=={versions.version()}", "==9.9.9", 1))
    assert [c.file for c in versions.copies(copied) if c.version != versions.version(copied)] == [
        "adapters/vllm/pyproject.toml"
    ]


@pytest.mark.parametrize("text", ["1.2", "v1.2.3", "1.2.3-rc1", ""])
def test_what_is_no_version_is_refused(text: str, copied: Path) -> None:
    with pytest.raises(ValueError, match="is no version"):
        versions.write(text, copied)


def test_the_changelog_has_an_entry_for_what_is_next() -> None:
    assert changelogs.entry(versions.version())


@pytest.mark.parametrize(
    ("heading", "date"),
    [
        ("## 1.2.3, 2026-01-02", "2026-01-02"),
        ("## 1.2.3, not released", None),
        ("## 1.2.30, 2026-01-02", None),
    ],
)
def test_only_an_entry_with_a_date_is_a_release(
    heading: str, date: str | None, tmp_path: Path
) -> None:
    (tmp_path / changelogs.CHANGELOG).write_text(f"# Changes\n\n{heading}\n\n- something\n")
    assert changelogs.released("1.2.3", tmp_path) == date


@pytest.mark.parametrize("header", changelogs.CONSTANTS)
def test_the_changelog_of_headers_ends_with_the_version_of_the_header(header: str) -> None:
    assert changelogs.newest_entry(header) == changelogs.header_version(header)


def test_every_header_is_in_the_changelog_of_headers() -> None:
    headers = {str(h.relative_to(ROOT)) for h in ROOT.glob("*/include/*.h")}
    assert headers == changelogs.CONSTANTS.keys()


def test_wheels_are_one_of_each_and_torches_are_known(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"has 0 wheels flagos-.*: make dist"):
        environments.wheels_in(tmp_path)
    names = [
        f"{name}-1-cp310-abi3-linux_{platform.machine()}.whl" for name in environments.DISTRIBUTIONS
    ]
    for name in names:
        (tmp_path / name).touch()
    assert [wheel.name for wheel in environments.wheels_in(tmp_path)] == names
    with pytest.raises(ValueError, match=r"no torch 2\.1; it is for 2\.11, "):
        environments.failures(tmp_path, ["2.1"], steps=1)


def test_a_demo_that_fails_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in environments.DISTRIBUTIONS:
        (tmp_path / f"{name}-1-{platform.machine()}.whl").touch()
    outcomes = {"2.11": 0, "2.12": 1}

    def demo(
        home: Path, wheels: list[Path], constraints: Path, steps: int
    ) -> subprocess.CompletedProcess[str]:
        torch = constraints.stem.removeprefix("torch-")
        return subprocess.CompletedProcess([], outcomes[torch], "OK\n", "")

    monkeypatch.setattr(environments, "_demo", demo)
    assert environments.failures(tmp_path, outcomes, 1) == ["the demo fails with torch 2.12"]
