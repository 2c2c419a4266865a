"""`flagos accuracy` finds FlagGems' right kernels within native's own noise, over whole models."""

from __future__ import annotations

from pathlib import Path

import pytest

from ..accuracy.command import Accuracy

#: A model, and operators of it that FlagGems serves.
MODELS = {
    "mlp": {"gelu", "tanh"},
    "decoder": {"bmm", "mm", "_softmax", "silu", "add.Tensor", "embedding"},
    "moe": {"_softmax", "silu"},
    "encoder": {"gelu"},
}


@pytest.mark.slow
@pytest.mark.parametrize("model", MODELS)
def test_strict_kernels_are_within(tmp_path: Path, model: str) -> None:
    report = Accuracy(tmp_path)(
        *("--no-bisect", "--roundings", "2"),
        status=0,
        MODEL=model,
        STRICT="1",
        TRITON_INTERPRET="1",
    )
    assert report["verdict"] == "within"
    served = {op.removeprefix("aten::") for op in report["operators"]}
    assert served >= MODELS[model], served
