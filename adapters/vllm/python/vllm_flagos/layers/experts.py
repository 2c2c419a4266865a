"""Experts without quantization over ``vllm::fused_experts``. vLLM has none for a platform that it does not know."""

from __future__ import annotations

from typing import Any

import torch
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)

from vllm_flagos import operators


class FlagosExperts(UnquantizedFusedMoEMethod):
    """Calls ``vllm::fused_experts``."""

    @property
    def is_monolithic(self) -> bool:
        """False: vLLM's router chooses the experts."""
        return False

    def maybe_make_prepare_finalize(self, routing_tables: Any = None) -> None:
        """None: each rank computes its experts of all replicas' tokens, and vLLM adds the ranks' results."""
        return None

    def forward_native(
        self,
        layer: Any,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any = None,
        shared_experts_input: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """[tokens, hidden]: the sum of the chosen experts of each token."""
        activation = layer.activation.value
        limit = getattr(layer, "swiglu_limit", None) if activation == "silu" else None
        adapters = getattr(layer, "flagos_adapters", None)  # see `adapted_experts`
        if adapters is not None:
            with_them: torch.Tensor = operators.experts_with_adapters(
                x,
                layer.w13_weight,
                layer.w2_weight,
                topk_weights,
                topk_ids,
                activation,
                *adapters(),
                weights_on_input=layer.apply_router_weight_on_input,
                all_experts=layer.global_num_experts,
                expert_map=layer.expert_map,
                limit=limit or None,
            )
            return with_them
        result: torch.Tensor = operators.fused_experts(
            x,
            layer.w13_weight,
            layer.w2_weight,
            topk_weights,
            topk_ids,
            activation,
            weights_on_input=layer.apply_router_weight_on_input,
            all_experts=layer.global_num_experts,
            expert_map=layer.expert_map,
            bias13=getattr(layer, "w13_bias", None),
            bias2=getattr(layer, "w2_bias", None),
            limit=limit or None,  # 0 is none to vLLM, too
        )
        return result

    # vLLM calls the one where its custom operators are on, and the other where Inductor compiles.
    forward_oot = forward_native


def register() -> None:
    """Puts the class in the place of vLLM's."""
    own = UnquantizedFusedMoEMethod.name
    UnquantizedFusedMoEMethod.register_oot(FlagosExperts)
    FlagosExperts.name = own
