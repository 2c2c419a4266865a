"""vLLM's operators beside torch's own, as operators of the plan.

Routes, ``flagos explain`` and counters call an operator ``vllm::<name>``. Their implementations are vLLM's own Triton
kernels, other kernels where vLLM's wheel has them, and references in torch's operators. The kernels that vLLM
registers with torch (``_C::rms_norm`` and others) keep their names: see `vllm_flagos.kernels`.
"""

from vllm_flagos.operators.attention import paged_attention, prefill_attention
from vllm_flagos.operators.block_scaled import block_scaled_mm
from vllm_flagos.operators.cache import reshape_and_cache, slot_mapping
from vllm_flagos.operators.experts import (
    experts_with_adapters,
    fused_experts,
    quantized_experts,
)
from vllm_flagos.operators.latent import (
    expanded_attention,
    expanded_attention_to_merge,
    latent_attention,
    mask_empty_context,
    merge_attention,
)
from vllm_flagos.operators.lora import lora_expand, lora_shrink
from vllm_flagos.operators.norm import gated_rms_norm
from vllm_flagos.operators.quantized import group_quantized_mm
from vllm_flagos.operators.rotary import rotate, rotate_in_three_axes
from vllm_flagos.operators.speculation import (
    expand_to_tokens,
    recover_tokens,
    reject_greedily,
    reject_randomly,
)
from vllm_flagos.operators.states import (
    causal_conv1d,
    causal_conv1d_update,
    chunk_gated_delta_rule,
    gated_delta_rule_packed_update,
    gated_delta_rule_update,
    prepare_delta_rule,
    selective_scan,
    state_space_chunks,
    state_space_update,
)

__all__ = [
    "block_scaled_mm",
    "causal_conv1d",
    "causal_conv1d_update",
    "chunk_gated_delta_rule",
    "expand_to_tokens",
    "expanded_attention",
    "expanded_attention_to_merge",
    "experts_with_adapters",
    "fused_experts",
    "gated_delta_rule_packed_update",
    "gated_delta_rule_update",
    "gated_rms_norm",
    "group_quantized_mm",
    "latent_attention",
    "lora_expand",
    "lora_shrink",
    "mask_empty_context",
    "merge_attention",
    "paged_attention",
    "prefill_attention",
    "prepare_delta_rule",
    "quantized_experts",
    "recover_tokens",
    "reject_greedily",
    "reject_randomly",
    "reshape_and_cache",
    "rotate",
    "rotate_in_three_axes",
    "selective_scan",
    "slot_mapping",
    "state_space_chunks",
    "state_space_update",
]
