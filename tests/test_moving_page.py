"""docs/moving.md can be followed from its first line to its last, and its table is right."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests.followed import Reader

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "moving.md").read_text(encoding="utf-8")
pytest.importorskip("torch_fl", reason="the torch adapter is not installed")


@pytest.mark.slow
def test_the_page_can_be_followed(tmp_path: Path) -> None:
    folder = tmp_path / "moved"
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    tools = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    reader = Reader(folder, {**kept, "PATH": tools, "FLAGOS_VENDOR": "host"})
    reader.follow(PAGE)
    assert "cuda" not in (folder / "train.py").read_text()
    assert len(reader.typed) == 8


def test_the_names_of_the_table_are_there() -> None:
    import torch

    named = set(re.findall(r"`torch\.flagos\.(\w+)`", PAGE))
    table = re.findall(r"`(Stream|Event|memory_allocated|manual_seed_all)(?:\(\))?`", PAGE)
    assert named and table
    for name in {*named, *table}:
        assert hasattr(torch.flagos, name)
    assert torch.ones(1).flagos().is_flagos and callable(torch.nn.Module.flagos)
    assert not hasattr(torch.backends, "flagos")


def test_a_name_that_is_not_there_says_what_to_use() -> None:
    import torch

    with pytest.raises(AttributeError, match=r"CUDAGraph'; in its place use torch\.flagos\.Graph"):
        _ = torch.flagos.CUDAGraph
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        _ = torch.flagos.nothing
    assert not hasattr(torch.flagos, "nvtx")
