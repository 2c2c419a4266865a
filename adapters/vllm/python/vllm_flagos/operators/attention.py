"""Attention over the paged KV cache, and over keys that are not cached: see `flagos_serving.references.attention`."""

from __future__ import annotations

from flagos_serving.references import attention as references
from vllm_flagos.operators import flash_attention_3
from vllm_flagos.vllm import VLLM

paged_attention = VLLM.declare(
    "paged_attention",
    reference=references.paged_attention,
    triton=VLLM.function("v1.attention.ops.triton_unified_attention", "unified_attention"),
    flash_attention_3=(flash_attention_3.paged_attention, flash_attention_3.missing()),
)
prefill_attention = VLLM.declare(
    "prefill_attention",
    reference=references.prefill_attention,
    triton=VLLM.function("v1.attention.ops.triton_prefill_attention", "context_attention_fwd"),
)
