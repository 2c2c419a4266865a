"""vLLM's operators beside torch's own, as operators of the plan.

Routes, ``flagos explain`` and counters call an operator ``vllm::<name>``. Their implementations are vLLM's own Triton
kernels, other kernels where vLLM's wheel has them, and references in torch's operators. The kernels that vLLM
registers with torch (``_C::rms_norm`` and others) keep their names: see `vllm_flagos.kernels`.
"""

from vllm_flagos.operators.attention import paged_attention, prefill_attention
from vllm_flagos.operators.block_scaled import block_scaled_mm
from vllm_flagos.operators.cache import reshape_and_cache, slot_mapping
from vllm_flagos.operators.experts import fused_experts
from vllm_flagos.operators.lora import lora_expand, lora_shrink
from vllm_flagos.operators.speculation import (
    expand_to_tokens,
    recover_tokens,
    reject_greedily,
    reject_randomly,
)

__all__ = [
    "block_scaled_mm",
    "expand_to_tokens",
    "fused_experts",
    "lora_expand",
    "lora_shrink",
    "paged_attention",
    "prefill_attention",
    "recover_tokens",
    "reject_greedily",
    "reject_randomly",
    "reshape_and_cache",
    "slot_mapping",
]
