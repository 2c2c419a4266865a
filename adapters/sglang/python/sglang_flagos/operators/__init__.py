"""SGLang's operators beside torch's own, as operators of the plan.

Routes, ``flagos explain`` and counters call an operator ``sglang::<name>``. Their signatures and references are
`flagos_serving.references`'. A reference rounds where SGLang's kernels round, which is not always where vLLM's do.
"""

from sglang_flagos.operators.alignment import align_experts
from sglang_flagos.operators.attention import (
    decode_attention,
    extend_attention,
    paged_attention,
)
from sglang_flagos.operators.cache import store_kv_cache
from sglang_flagos.operators.experts import fused_experts
from sglang_flagos.operators.grammar import apply_token_bitmask
from sglang_flagos.operators.layers import (
    fused_add_rms_norm,
    gelu_and_mul,
    gelu_tanh_and_mul,
    qk_norm,
    rms_norm,
    rotary_embedding,
    silu_and_mul,
)
from sglang_flagos.operators.quantized import (
    block_scaled_mm,
    per_token_group_fp8_quant,
    static_scaled_fp8_quant,
)

__all__ = [
    "align_experts",
    "apply_token_bitmask",
    "block_scaled_mm",
    "decode_attention",
    "extend_attention",
    "fused_add_rms_norm",
    "fused_experts",
    "gelu_and_mul",
    "gelu_tanh_and_mul",
    "paged_attention",
    "per_token_group_fp8_quant",
    "qk_norm",
    "rms_norm",
    "rotary_embedding",
    "silu_and_mul",
    "static_scaled_fp8_quant",
    "store_kv_cache",
]
