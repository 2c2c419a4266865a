"""The example for FlagGems, where FlagGems is installed (`make test-flaggems-slow`)."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.examples.page import read


@pytest.mark.slow
@pytest.mark.skipif(find_spec("flag_gems") is None, reason="FlagGems is not installed")
@pytest.mark.host
def test_it_prints_what_the_page_says(tmp_path: Path) -> None:
    assert len(read("flaggems_route.py", tmp_path)) == 2
