"""Every test starts without policies of the last one, and without variables of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from te_fl import core


@pytest.fixture(autouse=True)
def _no_policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(("TE_FL_", "TEFL_"))]:
        monkeypatch.delenv(name)
    core.reset_global_policy()
    yield
    monkeypatch.undo()
    core.reset_global_policy()
    core.LoggerManager.get_instance().reset()
