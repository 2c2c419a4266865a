"""FlagGems' kernels as implementations of SGLang's operators, interpreted, beside their references."""

from __future__ import annotations

from typing import Any

import pytest

from adapters.torch.tests.flaggems.conftest import unavailable

if unavailable() is not None:
    pytest.skip(unavailable() or "", allow_module_level=True)

from flagos_serving import verify
from sglang_flagos.cli import registered


def told(_: str, __: Any) -> None:
    """Nobody listens to the steps."""


@pytest.mark.parametrize(
    "op", ["rms_norm", "fused_add_rms_norm", "rotary_embedding", "silu_and_mul"]
)
def test_its_verdict_by_the_interpreter(op: str) -> None:
    """Those of vLLM's operators test the kernels; SGLang's norms round elsewhere."""
    assert verify._verified(registered, 4, f"sglang::{op}", told) == {
        "verdict": "STRICT",
        "cases": 4,
    }
