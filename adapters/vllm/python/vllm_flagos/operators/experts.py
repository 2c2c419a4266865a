"""Mixture of experts over packed weights: see `flagos_serving.references.experts`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import experts as reference
from vllm_flagos.kernels.flaggems import FLAGGEMS
from vllm_flagos.vllm import VLLM


def _kernel(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    weights_on_input: bool,
    all_experts: int,
    expert_map: Tensor | None,
    config: Any,
) -> Tensor:
    """vLLM's function of its experts' kernels, with one of its configurations of quantization."""
    from vllm.model_executor.layers.fused_moe.activation import MoEActivation
    from vllm.model_executor.layers.fused_moe.fused_moe import fused_experts as kernel

    result: Tensor = kernel(
        x,
        w13,
        w2,
        weights,
        experts,
        activation=MoEActivation(activation),
        apply_router_weight_on_input=weights_on_input,
        global_num_experts=all_experts,
        expert_map=expert_map,
        quant_config=config,
    )
    return result


def _triton(
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
    if limit is not None:
        raise decline("vLLM's function of its experts' kernels does not know the limit of gates")
    from vllm.model_executor.layers.fused_moe.config import (
        FUSED_MOE_UNQUANTIZED_CONFIG,
        biased_moe_quant_config,
    )

    config: Any = FUSED_MOE_UNQUANTIZED_CONFIG
    if bias13 is not None or bias2 is not None:
        config = biased_moe_quant_config(bias13, bias2)
    return _kernel(
        x, w13, w2, weights, experts, activation, weights_on_input, all_experts, expert_map, config
    )


def _triton_of_integers(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    scales13: Tensor,
    scales2: Tensor,
    zeros13: Tensor | None,
    zeros2: Tensor | None,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    form: str,
    *,
    weights_on_input: bool = False,
    all_experts: int = -1,
    expert_map: Tensor | None = None,
) -> Tensor:
    from vllm.model_executor.layers.fused_moe import config

    if x.dtype.itemsize != 2:
        raise decline(f"vLLM's kernels of quantized experts are for 16 bits, not for {x.dtype}")
    if form == "w8a8":
        made: Any = config.int8_w8a8_moe_quant_config(
            scales13, scales2, None, None, per_act_token_quant=True
        )
    else:
        group = w13.shape[-1] * (2 if form == "w4a16" else 1) // scales13.shape[-1]
        make = (
            config.int4_w4a16_moe_quant_config
            if form == "w4a16"
            else config.int8_w8a16_moe_quant_config
        )
        made = make(scales13, scales2, zeros13, zeros2, block_shape=[0, group])
    return _kernel(
        x, w13, w2, weights, experts, activation, weights_on_input, all_experts, expert_map, made
    )


quantized_experts = VLLM.declare(
    "quantized_experts", reference=reference.quantized_experts, triton=_triton_of_integers
)
experts_with_adapters = VLLM.declare(
    "experts_with_adapters", reference=reference.experts_with_adapters
)
fused_experts = VLLM.declare("fused_experts", reference=reference.fused_experts, triton=_triton)
FLAGGEMS.offer(fused_experts, "fused_experts")
