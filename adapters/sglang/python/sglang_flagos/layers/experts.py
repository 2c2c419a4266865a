"""Experts without quantization over ``sglang::fused_experts``."""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.moe.token_dispatcher import StandardCombineInput
from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod

from sglang_flagos import operators
from sglang_flagos.layers.norm import KEY


def _forward(self: Any, layer: Any, dispatch_output: Any) -> Any:
    """The experts of this rank; a number of -1 is of another rank's.

    Models multiply by the factor of their experts themselves, as `sglang_flagos.rules` asks them to.
    """
    config = self.moe_runner_config
    weights, experts, _ = dispatch_output.topk_output
    if config.gemm1_alpha is not None:
        raise NotImplementedError(
            "experts on flagos do not know the gates of gpt-oss: take another model"
        )
    activation = config.activation if config.is_gated else f"{config.activation}_no_mul"
    limit = config.swiglu_limit
    if config.gemm1_clamp_limit is not None and activation == "silu":  # which is behind silu
        activation, limit = "swiglustep", config.gemm1_clamp_limit
    output = operators.fused_experts(
        dispatch_output.hidden_states,
        layer.w13_weight,
        layer.w2_weight,
        weights,
        experts,
        activation,
        weights_on_input=config.apply_router_weight_on_input,
        bias13=getattr(layer, "w13_weight_bias", None),
        bias2=getattr(layer, "w2_weight_bias", None),
        limit=limit,
    )
    return StandardCombineInput(hidden_states=output)


def register() -> None:
    """Lets the layer call the operator."""
    UnquantizedFusedMoEMethod.register_oot_forward(UnquantizedFusedMoEMethod, _forward, KEY)
