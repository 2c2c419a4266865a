"""Triton over the simulated driver, with the launcher installed for the length of a test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from adapters.torch.tests.launcher import simulated


@pytest.fixture(scope="session")
def driver() -> Iterator[Any]:
    """Triton's active driver: the simulated one."""
    pytest.importorskip("triton", minversion="3.6")
    if reason := simulated.unavailable():
        pytest.skip(reason)
    from triton.runtime import driver

    before = driver._active
    yield simulated.active()
    driver._active = before


@pytest.fixture
def launcher(driver: Any) -> Iterator[Any]:
    """`torch_fl.launcher`, installed."""
    import torch_fl.launcher as launcher

    assert launcher.install() == {}
    launcher.reset_statistics()
    yield launcher
    launcher.set_recorder(None)
    launcher.install()
