"""Fixtures of the tools' tests: those of the device's tests, which they share."""

from __future__ import annotations

from adapters.torch.tests.conftest import (  # noqa: F401  fixtures
    _one_result,
    _same_state_after,
    chip,
    run_python,
)
