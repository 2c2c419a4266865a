"""Triton over the simulated driver of the launcher's tests."""

from __future__ import annotations

from adapters.torch.tests.launcher.conftest import driver, launcher  # noqa: F401  fixtures
