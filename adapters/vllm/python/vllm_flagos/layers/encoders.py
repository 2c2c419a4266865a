"""Encoders of images and sounds: attention over ``vllm::expanded_attention``, and convolutions as on CUDA."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.attention.mm_encoder_attention import MMEncoderAttention
from vllm.model_executor.layers.conv import Conv2dLayer
from vllm.v1.attention.backends.registry import AttentionBackendEnum

from vllm_flagos import operators
from vllm_flagos.layers.replacement import replace


def register() -> None:
    """Lets them compute as on vLLM's platform of CUDA, where `FlagosPlatform.get_vit_attn_backend` chose kernels."""
    replace(MMEncoderAttention, _attend)
    replace(Conv2dLayer, _convolved)


def _convolved(self: Any, x: Tensor) -> Any:
    """By torch's convolution: as a product of matrices, which platforms of others have, it has other last bits."""
    return self.forward_cuda(x)


def _attend(
    self: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seqlens: Tensor | None = None,
    max_seqlen: Tensor | None = None,
    sequence_lengths: Tensor | None = None,
) -> Any:
    """Over sequences of a batch [batch, tokens, ...]; with ``cu_seqlens`` over those that lie in the tokens of one."""
    if self.attn_backend == AttentionBackendEnum.TORCH_SDPA:
        return self.forward_native(query, key, value, cu_seqlens)
    size, tokens, keys = *query.shape[:2], key.shape[1]
    heads = self.view_qkv_to_4d(query, key, value, size, tokens, keys)
    if cu_seqlens is None:
        q_starts = _starts(size, tokens, query.device)
        # One tensor for both tells kernels that there are as many keys as queries.
        k_starts = q_starts if keys == tokens else _starts(size, keys, query.device)
        most = (tokens, keys)
    else:
        q_starts = k_starts = cu_seqlens
        longest = cu_seqlens.diff().max() if max_seqlen is None else max_seqlen
        most = (int(longest), int(longest))
    made = operators.expanded_attention(
        *(x.flatten(0, 1) for x in heads), q_starts, k_starts, *most, self.scale, False
    )
    return made.reshape(query.shape)


def _starts(sequences: int, length: int, device: torch.device) -> Tensor:
    return torch.arange(0, (sequences + 1) * length, length, dtype=torch.int32, device=device)
