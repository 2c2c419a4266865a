"""`flagos accuracy` for tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from .command import Accuracy


@pytest.fixture
def accuracy(tmp_path: Path) -> Accuracy:
    """Runs `flagos accuracy` in an empty folder."""
    return Accuracy(tmp_path)
