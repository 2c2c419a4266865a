"""FlagGems' kernels for vLLM's operators, by name (`flagos_serving.flaggems`)."""

from __future__ import annotations

from flagos_serving.flaggems import FlagGems
from flagos_serving.verdicts import Verdicts
from vllm_flagos.vllm import VLLM

SERVES = {
    "_C::rms_norm": "rms_norm",
    "_C::fused_add_rms_norm": "fused_add_rms_norm",
    "_C::rotary_embedding": "rotary_embedding",
    "_C::silu_and_mul": "silu_and_mul",
    "_C::gelu_and_mul": "gelu_and_mul",
    "_C::gelu_tanh_and_mul": "gelu_tanh_and_mul",
    "_moe_C::topk_softmax": "topk_softmax",
    "_moe_C::moe_sum": "moe_sum",
    "_moe_C::moe_align_block_size": "moe_align_block_size",
    "_C_cache_ops::concat_and_cache_mla": "concat_and_cache_mla",
    "vllm::fused_experts": "fused_experts",
}
FLAGGEMS = FlagGems(SERVES, Verdicts(VLLM))
