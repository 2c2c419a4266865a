"""The example for LightX2V, over the clone that LIGHTX2V_PATH names (`make test-lightx2v`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.examples.page import read


@pytest.mark.lightx2v
@pytest.mark.host
def test_it_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "flagos").mkdir()
    (tmp_path / "flagos" / "LightX2V").symlink_to(Path(os.environ["LIGHTX2V_PATH"]).resolve())
    assert read("lightx2v_block.py", tmp_path)
