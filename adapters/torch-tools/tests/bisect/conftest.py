"""`flagos bisect` for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .command import Bisect


@pytest.fixture
def bisect(tmp_path: Path) -> Bisect:
    """Runs `flagos bisect` in an empty folder."""
    return Bisect(tmp_path)
