"""The simulated chip with triton-ascend's wheel."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from core.vendors.ascend.simulated_rt import cann
from core.vendors.ascend.tests.triton_ascend import wheel


@pytest.fixture(scope="session")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """CANN's folder."""
    return cann.build(tmp_path_factory.mktemp("cann") / "8.1")


@pytest.fixture(scope="session")
def chip(toolkit: Path, tmp_path_factory: pytest.TempPathFactory) -> wheel.Chip:
    """The chip with the wheel."""
    if reason := wheel.why_not():
        pytest.skip(reason)
    python = wheel.interpreter()
    assert python is not None
    folder = tmp_path_factory.mktemp("chip") / "chip"
    return wheel.Chip(
        folder, toolkit, Path(os.environ[wheel.WHEEL]), python, real=wheel.has_torch()
    )
