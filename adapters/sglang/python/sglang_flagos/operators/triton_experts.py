"""Experts by SGLang's Triton kernel of grouped products, with its configurations. Nothing is read on the host."""

from __future__ import annotations

from typing import Any

import torch
import triton.language as tl
from sglang.kernels.ops.moe.fused_moe_triton_kernels import (
    invoke_fused_moe_kernel,
    moe_sum_reduce_triton,
)
from sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config import (
    get_config_dtype_str,
    try_get_optimal_moe_config,
)
from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references.experts import activate
from sglang_flagos.operators.alignment import align_experts
from sglang_flagos.operators.layers import gelu_and_mul, silu_and_mul

_TYPES = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
_NOT_QUANTIZED = {
    f"use_{form}": False for form in ("fp8_w8a8", "int8_w8a8", "int8_w8a16", "int4_w4a16")
}


def fused_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    *,
    weights_on_input: bool = False,
    all_experts: int = -1,
    expert_map: Tensor | None = None,
    bias13: Tensor | None = None,
    bias2: Tensor | None = None,
    limit: float | None = None,
) -> Tensor:
    """See `flagos_serving.references.experts`. The products of a token are added in float32."""
    if expert_map is not None or x.dtype not in _TYPES or w13.dtype != x.dtype:
        raise decline("SGLang's kernel of experts takes one type of floats, and no map of experts")
    if weights_on_input and experts.shape[1] != 1:
        raise decline("weights on the input are for one expert a token")
    if weights_on_input and bias13 is not None:
        raise decline("SGLang's kernel of experts gives a bias the weight of its token, too")
    weights = weights.contiguous()  # the kernel knows no strides of it
    tokens, chosen = experts.shape
    first, second = _configurations(w13, w2, chosen, x.dtype, tokens)
    places = align_experts(experts, w13.shape[0], first["BLOCK_SIZE_M"])

    given: dict[str, Any] = {
        "compute_type": _TYPES[x.dtype],
        "per_channel_quant": False,
        **_NOT_QUANTIZED,
    }
    gates = x.new_empty(tokens * chosen, w13.shape[1])
    invoke_fused_moe_kernel(
        *(x, w13, bias13, gates, None, None, None),
        *(weights, experts, *places, weights_on_input, chosen, first),
        **given,
    )
    made = x.new_empty(tokens, chosen, w2.shape[1])
    invoke_fused_moe_kernel(
        *(_activated(gates, activation, limit), w2, bias2, made, None, None, None),
        *(weights, experts, *places, not weights_on_input, 1, second),
        **given,
    )
    output = x.new_empty(x.shape)
    moe_sum_reduce_triton(made, output, 1.0)
    return output


def _configurations(
    w13: Tensor, w2: Tensor, chosen: int, dtype: torch.dtype, tokens: int
) -> tuple[dict[str, Any], dict[str, Any]]:
    """SGLang's for both products, without tensor descriptors. The second has the first's rows of a block."""
    first, (second, _) = try_get_optimal_moe_config(
        tuple(w13.shape),
        tuple(w2.shape),
        chosen,
        get_config_dtype_str(dtype),
        tokens,
        return_down_config=True,
    )
    given = (first, second or first)
    one, two = ({name: each[name] for name in each if name != "USE_TMA"} for each in given)
    return one, two


def _activated(gates: Tensor, activation: str, limit: float | None) -> Tensor:
    kernels = {"silu": silu_and_mul, "gelu": gelu_and_mul}
    if limit is not None or activation not in kernels:
        return activate(gates, activation, limit)
    out = gates.new_empty(len(gates), gates.shape[1] // 2)
    kernels[activation](out, gates)
    return out
