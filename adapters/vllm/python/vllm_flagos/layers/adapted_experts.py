"""Adapters (LoRA) of experts over ``vllm::experts_with_adapters``: vLLM's own are for its experts' kernels."""

from __future__ import annotations

from typing import Any

from vllm.lora import utils
from vllm.lora.layers import BaseLayerWithLoRA
from vllm.lora.layers import FusedMoE3DWithLoRA as Packed
from vllm.lora.layers import FusedMoEWithLoRA as Separate
from vllm.lora.layers.utils import _get_lora_device

# vLLM tells the layers apart by the names of their classes where it makes the adapters of its warm-up.


class FusedMoEWithLoRA(Separate):
    """Keeps the adapters' weights as vLLM does, and gives them to the layer's own method."""

    def __init__(self, base_layer: Any) -> None:
        BaseLayerWithLoRA.__init__(self)
        self.base_layer = base_layer
        self.moe_config = base_layer.moe_config
        self._shared_experts = base_layer._shared_experts
        base_layer.routed_experts.lora_base_layer_prefix = "base_layer."
        parallel = self.moe_config.moe_parallel_config
        self.tp_size, self.tp_rank = parallel.tp_size, parallel.tp_rank
        self.device = _get_lora_device(base_layer)
        self._w13_slices = 2 if self.moe_config.is_act_and_mul else 1
        self.enable_moe_shared_loras = False
        self.n_slices = self.local_num_experts * (self._w13_slices + 1)

    def set_mapping(self, punica_wrapper: Any) -> None:
        """Lets the layer's method find the adapters of a step's tokens."""
        BaseLayerWithLoRA.set_mapping(self, punica_wrapper)
        self.base_layer.routed_experts.flagos_adapters = self._of_this_step

    def _of_this_step(self) -> tuple[Any, ...]:
        return (
            self.punica_wrapper.token_lora_indices,
            *(self.w13_lora_a_stacked, self.w13_lora_b_stacked),
            *(self.w2_lora_a_stacked[0], self.w2_lora_b_stacked[0]),
        )


class FusedMoE3DWithLoRA(Packed):
    """Refuses models whose adapters have the experts of a layer in one tensor."""

    def __init__(self, base_layer: Any) -> None:
        raise ValueError(
            "--enable-lora: adapters of this model have all experts of a layer in one tensor, which flagos has no "
            "operator for; leave it out"
        )


def register() -> None:
    """Puts the classes in the place of vLLM's."""
    ours = {Separate: FusedMoEWithLoRA, Packed: FusedMoE3DWithLoRA}
    utils._all_lora_classes = tuple(ours.get(one, one) for one in utils._all_lora_classes)
