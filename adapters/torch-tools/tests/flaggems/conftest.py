"""FlagGems' kernels verified by Triton's interpreter (`make test-flaggems`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.torch.tests.flaggems.conftest import nothing_routed, served_by, skip_below  # noqa: F401  fixtures


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of them where they cannot run."""
    skip_below(Path(__file__).parent, items)
