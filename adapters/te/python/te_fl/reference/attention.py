"""Attention, softmax(scale·q·kᵀ + bias)·v over the pairs that its masks allow, with every score written out.

q, k and v are (b, h, s, d) here; packed sequences (thd) are one sequence of a batch of one. Keys and values of fewer
heads serve several heads of queries. The arguments are parsed as those of ``default.flagos_rs``: FP8, paged keys,
sinks, ALiBi and context parallelism are declined.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.operators.attention import backward, forward
from te_fl.operators.attention_call import Call
from te_fl.operators.flash_attention import FlashAttention
from te_fl.reference.precision import wide


def _inside(call: Call, queries: int, keys: int) -> torch.Tensor:
    """(queries, keys) of one sequence: the pairs that the causal mask and the window allow."""
    query, key = torch.arange(queries)[:, None], torch.arange(keys)
    distance = key - query - (keys - queries if call.bottom_right else 0)
    left, right = call.window
    allowed = torch.ones(queries, keys, dtype=torch.bool)
    if "CAUSAL" in call.mask:
        allowed &= distance <= 0
    elif right >= 0:
        allowed &= distance <= right
    if left >= 0:
        allowed &= distance >= -left
    return allowed


def _allowed(call: Call, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """(b or 1, 1, queries, keys): True for a pair of one sequence that may attend."""
    packed = call.q_format == "thd"
    if not packed and "PADDING" not in call.mask:
        return _inside(call, q.shape[2], k.shape[2]).to(q.device)[None, None]
    if any(lengths is None for lengths in call.lengths):
        raise ValueError("a padding mask and thd need cu_seqlens_q and cu_seqlens_kv")
    ends = [lengths.tolist() for lengths in call.lengths if lengths is not None]
    places = [
        end if offsets is None else offsets.tolist()
        for end, offsets in zip(ends, call.offsets, strict=True)
    ]
    allowed = torch.zeros(q.shape[0], 1, q.shape[2], k.shape[2], dtype=torch.bool)
    for i in range(len(ends[0]) - 1):
        queries, keys = (end[i + 1] - end[i] for end in ends)
        at_q, at_k = (place[i] for place in places) if packed else (0, 0)
        sequence = allowed[0 if packed else i, 0]
        sequence[at_q : at_q + queries, at_k : at_k + keys] = _inside(call, queries, keys)
    return allowed.to(q.device)


def _scores(call: Call, q: torch.Tensor, k: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """(scale·q·kᵀ + bias (b, h, queries, keys), whether each pair is allowed)."""
    k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores, allowed = call.scale * (wide(q) @ wide(k).mT), _allowed(call, q, k)
    if call.bias is not None:
        scores = scores + call.bias
        allowed = allowed & (call.bias > float("-inf"))
    return scores, allowed


def attend(
    call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float = 0.0
) -> torch.Tensor:
    """The output (b, h, queries, d) in the dtype of q: 0 for a query that may attend to no key."""
    scores, allowed = _scores(call, q, k)
    some = allowed.any(-1, keepdim=True)
    # A softmax without a finite score would have no gradient, so such a row keeps zeros until it is masked.
    scores = torch.where(allowed, scores, float("-inf")).masked_fill(~some, 0.0)
    weights = torch.softmax(scores, -1).masked_fill(~some, 0.0)
    weights = torch.nn.functional.dropout(weights, dropout)
    return (weights @ wide(v).repeat_interleave(q.shape[1] // v.shape[1], 1)).to(q.dtype)


def logsumexp(call: Call, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The log-sum-exp of the allowed scores, (b, h, queries, 1) in float32."""
    scores, allowed = _scores(call, q, k)
    scores = torch.where(allowed, scores, float("-inf"))
    return torch.logsumexp(scores, -1, keepdim=True).float()


def differentiate(
    call: Call,
    qkv: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    dout: torch.Tensor,
    statistics: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The gradients of q, k, v and of the bias, where ``out`` and ``statistics`` are of more keys than k has."""
    q, k, v = (wide(x) for x in qkv)
    scores, allowed = _scores(call, *qkv[:2])
    weights = torch.where(allowed, torch.exp(scores - statistics), 0.0)
    groups, dout = q.shape[1] // k.shape[1], wide(dout)
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    of_scores = weights * (dout @ v.mT - (dout * out).sum(-1, keepdim=True))
    dk, dv = (
        x.unflatten(1, (-1, groups)).sum(2)
        for x in (call.scale * of_scores.mT @ q, weights.mT @ dout)
    )
    dbias = None if call.bias is None else of_scores.sum_to_size(call.bias.shape)
    return call.scale * of_scores @ k, dk, dv, dbias


def fused_attn_fwd(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """[output, log-sum-exp of the scores, state of the random generator]."""
    return forward(attend, logsumexp, args, kwargs)


def fused_attn_bwd(*args: Any, **kwargs: Any) -> list[torch.Tensor | None]:
    """[dQ, dK, dV, gradient of the bias or None], by autograd."""
    return backward(attend, differentiate, args, kwargs)


class ReferenceFlashAttention(FlashAttention):
    """TransformerEngine-FL's attention module with the formula of this file."""

    attend = staticmethod(attend)


def get_flash_attention_class() -> type[FlashAttention]:
    """The attention class that TransformerEngine-FL instantiates."""
    return ReferenceFlashAttention
