"""Every test starts without policies of the last one, and without variables of the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from te_fl import core, operators, reference
from te_fl.operators.flash_attention import FlashAttention
from te_fl.reference.attention import ReferenceFlashAttention


@pytest.fixture(autouse=True)
def _no_policy(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in [name for name in os.environ if name.startswith(("TE_FL_", "TEFL_"))]:
        monkeypatch.delenv(name)
    core.reset_global_policy()
    yield
    monkeypatch.undo()
    core.reset_global_policy()
    core.LoggerManager.get_instance().reset()


def _formulas() -> dict[int, Any]:
    """The plain formulas by the identity of what stands for them in ``te_fl.operators``: modules and functions."""
    twins: dict[int, Any] = {
        id(function): reference.OPERATORS[name] for name, function in operators.OPERATORS.items()
    }
    for name, module in vars(operators).items():
        if isinstance(module, ModuleType) and hasattr(reference, name):
            twins[id(module)] = getattr(reference, name)
    twins[id(operators.activation.OPERATORS)] = reference.activation.OPERATORS
    twins[id(FlashAttention)] = ReferenceFlashAttention
    return twins


@pytest.fixture(params=[operators.IMPL_ID, reference.IMPL_ID])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The implementation that the tests of a module are about: its imports of operators become those of it."""
    if request.param == reference.IMPL_ID:
        twins = _formulas()
        found = {name for name, value in vars(request.module).items() if id(value) in twins}
        assert found, f"{request.module.__name__} imports no operators"
        for name in found:
            monkeypatch.setattr(request.module, name, twins[id(getattr(request.module, name))])
    return str(request.param)
