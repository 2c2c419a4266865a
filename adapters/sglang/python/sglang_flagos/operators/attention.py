"""Attention over SGLang's pool of tokens: see `flagos_serving.references.attention`.

Where Triton reaches the device, SGLang's own metadata for its Triton kernels goes to `decode_attention` and
`extend_attention`, elsewhere, and where FlashAttention 3 is, a table of places to `paged_attention`, with blocks of one
token.
"""

from __future__ import annotations

from typing import Any

import torch

from flagos_serving.references import attention as references
from sglang_flagos.engine import SGLANG
from sglang_flagos.operators import wheel

paged_attention = SGLANG.declare(
    "paged_attention",
    reference=references.paged_attention,
    flash_attention_3=(wheel.paged_attention, wheel.attention_missing()),
)
decode_attention = SGLANG.declare(
    "decode_attention",
    reference=references.decode_attention,
    triton=SGLANG.function("kernels.ops.attention.decode_attention", "decode_attention_fwd"),
)
extend_attention = SGLANG.declare(
    "extend_attention",
    reference=references.extend_attention,
    triton=SGLANG.function("kernels.ops.attention.extend_attention", "extend_attention_fwd"),
)


def by_flash_attention(model: Any, cache: torch.dtype | None) -> bool:
    """Whether FlashAttention 3 is preferred for a model (SGLang's `ModelConfig`) with a cache of this type."""
    return (
        paged_attention.winner.startswith("flash_attention_3")
        and model.dtype in (torch.float16, torch.bfloat16)
        and model.dtype == cache
        and wheel.takes_heads(model.head_dim, model.v_head_dim)
    )
