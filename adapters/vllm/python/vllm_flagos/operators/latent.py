"""Multi-head latent attention: see `flagos_serving.references.latent`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import latent as references
from vllm_flagos.operators import flash_attention_3
from vllm_flagos.vllm import VLLM

_kernel = VLLM.function("v1.attention.ops.triton_prefill_attention", "context_attention_fwd")


def _triton(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    most_queries: int,
    most_keys: int,
    scale: float,
    causal: bool,
) -> Tensor:
    if q_starts is not k_starts or v.shape[2] > q.shape[2]:
        raise decline("vLLM's kernel is for as many keys as queries, and values that are not wider")
    wide = F.pad(v, (0, q.shape[2] - v.shape[2]))
    out = torch.empty_like(q)
    _kernel(
        q,
        k,
        wide,
        out,
        q_starts[:-1],
        q_starts.diff(),
        most_queries,
        is_causal=causal,
        softmax_scale=scale,
    )
    return out[..., : v.shape[2]]


latent_attention = VLLM.declare(
    "latent_attention",
    reference=references.latent_attention,
    triton=VLLM.function("v1.attention.ops.triton_decode_attention", "decode_attention_fwd"),
)
expanded_attention = VLLM.declare(
    "expanded_attention",
    reference=references.expanded_attention,
    triton=_triton,
    flash_attention_3=(flash_attention_3.expanded_attention, flash_attention_3.missing()),
)
expanded_attention_to_merge = VLLM.declare(
    "expanded_attention_to_merge",
    reference=references.expanded_attention_to_merge,
    flash_attention_3=(flash_attention_3.expanded_attention_to_merge, flash_attention_3.missing()),
)
merge_attention = VLLM.declare(
    "merge_attention",
    reference=references.merge_attention,
    triton=VLLM.function("v1.attention.ops.triton_merge_attn_states", "merge_attn_states"),
)
mask_empty_context = VLLM.declare(
    "mask_empty_context",
    reference=references.mask_empty_context,
    triton=VLLM.function("v1.attention.ops.triton_merge_attn_states", "mask_empty_context"),
)
