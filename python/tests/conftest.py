"""Processes with a known environment, and interpreters in which torch is absent, broken or old."""

from __future__ import annotations

import os

import pytest

from python.tests.chips import chip, chip_objects, compiled, defective  # noqa: F401  fixtures
from python.tests.interpreters import (  # noqa: F401  fixtures
    bare_python,
    diagnose,
    fakes,
    interpreter,
    without_torch,
)

# The configuration of whoever runs the tests must not reach the engine of this process.
for _name in [name for name in os.environ if name.startswith("FLAGOS_")]:
    del os.environ[_name]
# The same devices on every machine.
os.environ["FLAGOS_VENDOR"] = "host"


@pytest.fixture
def namespace(request: pytest.FixtureRequest) -> str:
    """A namespace of operators that no other test uses: the registry lives as long as the process."""
    return "".join(c if c.isalnum() else "_" for c in request.node.nodeid.split("::", 1)[1])
