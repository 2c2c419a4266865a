"""Every Triton kernel is compiled for a GPU: what the interpreter takes, the compiler may refuse."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from adapters.serving.tests import processes

PROGRAM = Path(__file__).parent / "programs/compilation.py"


@pytest.mark.host
@pytest.mark.slow
def test_every_kernel_compiles_for_sm_90(tmp_path: Path) -> None:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    environ = processes.environment(
        TRITON_INTERPRET=None, TRITON_CACHE_DIR=str(tmp_path), FLAGOS_VENDOR="host"
    )
    found = processes.reported(PROGRAM, (), environ, timeout=300)
    assert found["kernels"] and found["variants"].keys() == set(found["kernels"])
