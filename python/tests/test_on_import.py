"""Completions of modules whose import has not begun, has begun, and is over."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from flagos.on_import import when_imported


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, namespace: str) -> str:
    """A package that calls `begun()` in the middle of its import, and fails at the end if FAILS is set."""
    folder = tmp_path / namespace
    folder.mkdir()
    (folder / "__init__.py").write_text(
        "import builtins\nwhole = False\nbuiltins.begun()\nwhole = True\n"
        "if getattr(builtins, 'fails', False):\n    raise ImportError('it fails')\n"
    )
    (folder / "part.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("builtins.begun", lambda: None, raising=False)
    return namespace


def noting(package: str, seen: list[bool]) -> None:
    when_imported(package, lambda: seen.append(sys.modules[package].whole))


def test_a_module_is_completed_after_its_import_whenever_that_began(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr("builtins.begun", lambda: [noting(package, seen) for _ in range(2)])
    module = importlib.import_module(package)
    assert seen == [True, True]
    assert type(module.__spec__) is importlib.machinery.ModuleSpec
    assert not module.__spec__._initializing
    noting(package, seen)
    assert seen == [True, True, True]
    # The specification of an import that has not begun is left alone.
    later: list[str] = []
    when_imported(f"{package}.part", lambda: later.append("part"))
    assert later == []
    importlib.import_module(f"{package}.part")
    assert later == ["part"]


def test_a_module_that_could_not_be_imported_is_not_completed(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []
    monkeypatch.setattr("builtins.begun", lambda: noting(package, seen))
    monkeypatch.setattr("builtins.fails", True, raising=False)
    with pytest.raises(ImportError, match="it fails"):
        importlib.import_module(package)
    assert seen == []


def test_a_completion_that_fails_is_a_warning(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        raise KeyError("gone")

    monkeypatch.setattr("builtins.begun", lambda: when_imported(package, broken))
    with pytest.warns(RuntimeWarning, match="without flagos: KeyError"):
        importlib.import_module(package)
