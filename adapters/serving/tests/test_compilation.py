"""Every Triton kernel is compiled for a GPU: what the interpreter takes, the compiler may refuse."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from adapters.serving.tests import processes

PROGRAM = Path(__file__).parent / "programs/compilation.py"


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    cache = str(tmp_path_factory.mktemp("triton"))
    environ = processes.environment(
        TRITON_INTERPRET=None, TRITON_CACHE_DIR=cache, FLAGOS_VENDOR="host"
    )
    return processes.reported(PROGRAM, (), environ, timeout=300)


@pytest.mark.host
@pytest.mark.slow
def test_every_kernel_compiles_for_sm_90(found: dict[str, Any]) -> None:
    assert found["kernels"] and found["variants"].keys() == set(found["kernels"])


@pytest.mark.host
@pytest.mark.slow
def test_what_does_not_compile_is_refused(found: dict[str, Any]) -> None:
    assert found["refusals"]["32"] == ""
    assert "Mismatched type for column" in found["refusals"]["16"]
