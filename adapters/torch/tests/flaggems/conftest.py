"""FlagGems' kernels by Triton's interpreter, on tensors of the host's flagos device (`make test-flaggems`)."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

TESTED = "5.0.2"
"""The version that `make test-flaggems` installs."""


def unavailable() -> str | None:
    """Why these tests cannot run in this process."""
    for name in ("triton", "torch_fl"):
        if find_spec(name) is None:
            return f"{name} is not installed (make test-flaggems)"
    from torch_fl.flaggems import presence

    if presence.folder() is None:
        return "FlagGems is neither installed nor named by FLAGGEMS_SOURCE_DIR (make test-flaggems)"
    if os.environ.get("TRITON_INTERPRET") != "1":
        return "Triton compiles in this process (make test-flaggems sets TRITON_INTERPRET=1)"
    return None


def of_the_tested_version() -> pytest.MarkDecorator:
    """Skips a test about particulars of FlagGems 5.0.2 with a checkout (`make test-flaggems FLAGGEMS_PATH=...`)."""
    from torch_fl.flaggems import package

    version = package.version() if unavailable() is None else "none"
    reason = f"it is about particulars of FlagGems {TESTED}, and here is {version}"
    return pytest.mark.skipif(version != TESTED, reason=reason)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all of them where they cannot run."""
    skip_below(Path(__file__).parent, items)


def skip_below(folder: Path, items: list[pytest.Item]) -> None:
    """Skip the tests of a folder where FlagGems is not interpreted."""
    reason = unavailable()
    for item in items:
        if reason is not None and folder in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def served_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has FlagGems' function for an overload be another one."""
    from torch_fl.flaggems import implementations, package

    package.function("silu")
    functions = dict(package._functions or {})
    monkeypatch.setattr(package, "_functions", functions)
    monkeypatch.setattr(
        implementations.Function, "_found", lambda self: package.function(self._overload)
    )
    return functions.__setitem__


@pytest.fixture(autouse=True)
def nothing_routed() -> object:
    """Takes FlagGems' routes away, so that each test makes its own."""
    import torch_fl

    yield
    torch_fl.disable_flaggems()
