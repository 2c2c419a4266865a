"""docs/accuracy.md can be followed from its first line to its last."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.followed import Reader

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "accuracy.md").read_text()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A reader with an empty folder."""
    pytest.importorskip("torch_fl", reason="the torch adapter is not installed")
    folder = tmp_path / "gate"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return Reader(folder, {**kept, "PATH": tools, "FLAGOS_VENDOR": "host"})


def test_the_page_can_be_followed(reader: Reader) -> None:
    reader.follow(PAGE)
    assert len(reader.typed) == 2


def test_another_result_is_not_what_the_page_says(reader: Reader) -> None:
    assert PAGE.count("[65536:] *= 1.001") == 1
    with pytest.raises(AssertionError, match="status 1"):  # nothing is wrong then
        reader.follow(PAGE.replace("[65536:] *= 1.001", "[65536:] *= 1.0"))
