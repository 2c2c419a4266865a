"""Triton kernels of the operators that engines compile from CUDA, interpreted and on a device."""

from __future__ import annotations

import ast
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from adapters.serving.tests import processes

PROGRAM = Path(__file__).parent / "programs/kernels.py"
KERNELS = [
    node.name
    for node in ast.parse(
        (Path(__file__).parents[1] / "python/flagos_serving/triton_kernels.py").read_text()
    ).body
    if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
]


@pytest.fixture(scope="module")
def interpreted() -> dict[str, Any]:
    if find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    environ = processes.environment(TRITON_INTERPRET="1", FLAGOS_VENDOR="host")
    return processes.reported(PROGRAM, (), environ, timeout=300)


@pytest.mark.host
@pytest.mark.slow
@pytest.mark.parametrize("kernel", [*KERNELS, "silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"])
def test_interpreted(interpreted: dict[str, Any], kernel: str) -> None:
    assert interpreted["differences"][kernel] == []


@pytest.mark.host
@pytest.mark.slow
def test_what_is_declined(interpreted: dict[str, Any]) -> None:
    declined = interpreted["declined"]
    assert declined["rows"] == (
        "UnsupportedError: the Triton kernel reduces rows of at most 65536 columns, not of 70000"
    )
    assert "values of the cache's type alone" in declined["types"]
    assert "writes activations of contiguous rows alone" in declined["gaps"]


@pytest.mark.cuda
@pytest.mark.slow
def test_compiled() -> None:
    found = processes.reported(PROGRAM, (), processes.environment(), timeout=300)
    assert found["differences"] == {kernel: [] for kernel in found["differences"]}
