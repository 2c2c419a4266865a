"""Products of 8-bit numbers whose scales are of groups and blocks: see `flagos_serving.references.block_scaled`."""

from __future__ import annotations

import torch
from torch import Tensor

from flagos_serving.references import block_scaled as reference
from vllm_flagos.vllm import VLLM

block_scaled_mm = VLLM.declare(
    "block_scaled_mm",
    reference=reference.block_scaled_mm,
    triton=VLLM.function(
        "model_executor.layers.quantization.utils.fp8_utils", "w8a8_triton_block_scaled_mm"
    ),
)


def _shape(
    x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, block: list[int], dtype: torch.dtype
) -> Tensor:
    return x.new_empty(x.shape[0], w.shape[0], dtype=dtype)


VLLM.declare_to_compilers(
    block_scaled_mm,
    "block_scaled_mm(Tensor x, Tensor w, Tensor x_scale, Tensor w_scale, int[] block, ScalarType dtype) -> Tensor",
    _shape,
)
