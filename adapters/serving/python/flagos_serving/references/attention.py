"""Attention over the paged KV cache, and over keys that are not cached.

``paged_attention`` has the signature of vLLM's ``unified_attention``. q is [tokens, heads, dim], k and v are
[blocks, block size, KV heads, dim], ``block_table`` is int32 [sequences, blocks], ``cu_seqlens_q`` int32 [sequences
+ 1], ``seqused_k`` int32 [sequences]; it writes ``out`` [tokens, heads, dim of v]. A sequence's queries are its last
ones. Values of 8 bits are times their scales: ``q_descale`` is one number, ``k_descale`` and ``v_descale`` are float32
[sequences, KV heads].

``prefill_attention`` has the signature of vLLM's ``context_attention_fwd``: q, k, v, o are [tokens, heads, dim].

``decode_attention`` and ``extend_attention`` have those of SGLang's ``decode_attention_fwd`` and
``extend_attention_fwd``: keys and values are [places, KV heads, dim], and ``kv_indices`` has the places of all
sequences, one after the other from ``kv_indptr`` [sequences + 1] on. A sequence decodes one query. What it extends, its
queries, keys and values from ``qo_indptr`` on, is not in ``kv_indices``.
"""

from __future__ import annotations

import itertools
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flagos_serving.declaration import decline, decline_others

# What only Triton's kernels read: their work buffers, and settings that mean nothing where they are at their defaults.
OF_TRITON = (
    "seq_threshold_3D",
    "num_par_softmax_segments",
    "softmax_segm_output",
    "softmax_segm_max",
    "softmax_segm_expsum",
    "use_td",
    "mm_prefix_clamp_sliding_window",
    "kv_quant_mode",
)


def _visible(
    queries: int, keys: int, causal: bool, window: tuple[int, int], device: torch.device
) -> Tensor | None:
    """Bool [queries, keys]: the keys that each query sees; None if each sees all. The last query has the last key."""
    left, right = window
    if (not causal or queries == 1) and left < 0 and right < 0:
        return None
    distance = (
        torch.arange(keys, device=device)[None, :]
        - torch.arange(keys - queries, keys, device=device)[:, None]
    )
    seen = torch.ones(queries, keys, dtype=torch.bool, device=device)
    if causal:
        seen &= distance <= 0
    if left >= 0:
        seen &= distance >= -left
    if right >= 0:
        seen &= distance <= right
    return seen


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    scale: float,
    causal: bool,
    window: tuple[int, int],
    softcap: float = 0.0,
    slopes: Tensor | None = None,
    by_root: bool = False,
    sinks: Tensor | None = None,
) -> Tensor:
    """One sequence: q [queries, heads, dim] over k and v [keys, KV heads, dim]; returns q's shape and dtype.

    ``slopes`` [heads] are of ALiBi's distance of keys before a query, or (``by_root``) of its square root.
    """
    seen = _visible(q.shape[0], k.shape[0], causal, window, q.device)
    queries, keys, values = (x.transpose(0, 1) for x in (q, k, v))
    if not softcap and slopes is None and sinks is None:
        output = F.scaled_dot_product_attention(
            queries[None],
            keys[None],
            values[None],
            attn_mask=seen,
            scale=scale,
            enable_gqa=queries.shape[0] != keys.shape[0],
        )
        return output[0].transpose(0, 1)
    group = queries.shape[0] // keys.shape[0]
    keys, values = (x.repeat_interleave(group, dim=0).float() for x in (keys, values))
    scores = (queries.float() @ keys.transpose(1, 2)) * scale
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if slopes is not None:
        places = torch.arange(k.shape[0], device=q.device)
        distance = places[None, :] - places[k.shape[0] - q.shape[0] :, None]
        if by_root:
            distance = -distance.clamp(max=0).neg().float().sqrt()
        scores = scores + slopes.to(q.device).float()[:, None, None] * distance
    if seen is not None:
        scores = scores.masked_fill(~seen, float("-inf"))
    if sinks is not None:  # a key without a value, which only takes a share
        column = sinks.float()[:, None, None].expand(-1, q.shape[0], 1)
        weights = torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]
    else:
        weights = torch.softmax(scores, dim=-1)
    return (weights @ values).transpose(0, 1).to(q.dtype)


def _cached(
    cache: Tensor, blocks: Tensor, length: int, scale: Any, row: int, to: torch.dtype
) -> Tensor:
    """The first ``length`` keys or values of a sequence, [length, KV heads, dim] in ``to``."""
    found = cache[blocks].flatten(0, 1)[:length]
    if found.element_size() > 1:
        return found.to(to)
    wide = found.float()
    return (wide if scale is None else wide * scale[row].float()[None, :, None]).to(to)


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    seqused_k: Tensor,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool | Tensor,
    window_size: tuple[int, int],
    block_table: Tensor,
    softcap: float,
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    alibi_slopes: Tensor | None = None,
    use_alibi_sqrt: bool = False,
    sinks: Tensor | None = None,
    chunk_lookback: int = -1,
    **others: Any,
) -> None:
    """Sequence by sequence, with the lengths read on the host."""
    decline_others("the reference of paged attention", others, OF_TRITON)
    if not isinstance(causal, bool):
        raise decline("the reference of paged attention takes one `causal` for all sequences")
    if chunk_lookback >= 0:
        raise decline("the reference of paged attention does not know chunked attention")
    if k.dtype in (torch.int8, torch.uint8):
        raise decline("the reference of paged attention does not know a cache of integers")
    if q.element_size() == 1:
        q = (q.float() if q_descale is None else q.float() * q_descale).to(out.dtype)
    starts, lengths, size = cu_seqlens_q.tolist(), seqused_k.tolist(), k.shape[1]
    for row, length in enumerate(lengths):
        begin, end = starts[row], starts[row + 1]
        if begin == end:
            continue
        blocks = block_table[row, : -(-length // size)].long()
        out[begin:end] = _attend(
            q[begin:end],
            _cached(k, blocks, length, k_descale, row, q.dtype),
            _cached(v, blocks, length, v_descale, row, q.dtype),
            scale=softmax_scale,
            causal=causal,
            window=window_size,
            softcap=softcap,
            slopes=alibi_slopes,
            by_root=use_alibi_sqrt,
            sinks=sinks,
        ).view_as(out[begin:end])


def prefill_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    o: Tensor,
    b_start_loc: Tensor,
    b_seq_len: Tensor,
    max_input_len: int,
    is_causal: bool = True,
    softmax_scale: float | None = None,
    sliding_window_q: int | None = None,
    sliding_window_k: int | None = None,
    sinks: Tensor | None = None,
) -> None:
    window = tuple(-1 if side is None else side for side in (sliding_window_q, sliding_window_k))
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    for begin, length in zip(b_start_loc.tolist(), b_seq_len.tolist(), strict=False):
        part = slice(begin, begin + length)
        o[part] = _attend(
            q[part],
            k[part],
            v[part],
            scale=scale,
            causal=is_causal,
            window=(window[0], window[1]),
            sinks=sinks,
        ).view_as(o[part])


def decode_attention(
    q: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    o: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    attn_logits: Tensor,
    attn_lse: Tensor,
    num_kv_splits: Tensor,
    max_kv_splits: int,
    sm_scale: float,
    k_scale: float,
    v_scale: float,
    logit_cap: float = 0.0,
    sinks: Tensor | None = None,
    xai_temperature_len: int = -1,
    has_mla: bool = False,
    use_pdl: bool = False,
    page_size: int = 1,
    **others: Any,
) -> None:
    """Sequence by sequence, with the lengths read on the host. The buffers for parts of sums stay as they are."""
    decline_others("the reference of decoding attention", others)
    _decline_forms(has_mla, xai_temperature_len, k_buffer)
    bounds = kv_indptr.tolist()
    for row in range(q.shape[0]):
        places = kv_indices[bounds[row] : bounds[row + 1]].long()
        o[row : row + 1] = _attend(
            q[row : row + 1],
            _of_scale(k_buffer[places], k_scale, q.dtype),
            _of_scale(v_buffer[places], v_scale, q.dtype),
            scale=sm_scale,
            causal=True,
            window=(-1, -1),
            softcap=logit_cap,
            sinks=sinks,
        )


def extend_attention(
    q_extend: Tensor,
    k_extend: Tensor,
    v_extend: Tensor,
    o_extend: Tensor,
    k_buffer: Tensor,
    v_buffer: Tensor,
    qo_indptr: Tensor,
    kv_indptr: Tensor,
    kv_indices: Tensor,
    custom_mask: Tensor | None,
    is_causal: bool,
    mask_indptr: Tensor | None,
    max_len_extend: int,
    k_scale: float,
    v_scale: float,
    sm_scale: float | None = None,
    logit_cap: float = 0.0,
    skip_prefix_custom_mask: bool = True,
    sliding_window_size: int = -1,
    sinks: Tensor | None = None,
    window_kv_offsets: Tensor | None = None,
    xai_temperature_len: int = -1,
    page_size: int = 1,
    **others: Any,
) -> None:
    """Sequence by sequence. With a window, ``kv_indices`` has what the window of the first query sees, or more."""
    decline_others("the reference of extending attention", others)
    _decline_forms(False, xai_temperature_len, k_buffer)
    if custom_mask is not None:
        raise decline("the reference of extending attention does not know masks of drafts")
    starts, bounds, dtype = qo_indptr.tolist(), kv_indptr.tolist(), q_extend.dtype
    for row, (begin, end) in enumerate(itertools.pairwise(starts)):
        if begin == end:
            continue
        places = kv_indices[bounds[row] : bounds[row + 1]].long()
        before = (
            _of_scale(k_buffer[places], k_scale, dtype),
            _of_scale(v_buffer[places], v_scale, dtype),
        )
        o_extend[begin:end] = _attend(
            q_extend[begin:end],
            torch.cat((before[0], k_extend[begin:end])),
            torch.cat((before[1], v_extend[begin:end])),
            scale=q_extend.shape[-1] ** -0.5 if sm_scale is None else sm_scale,
            causal=is_causal,
            window=(sliding_window_size, -1),
            softcap=logit_cap,
            sinks=sinks,
        )


def _decline_forms(latent: bool, temperature_len: int, buffer: Tensor) -> None:
    if latent or buffer.dim() != 3:
        raise decline(
            "the reference takes keys and values of single tokens, not latent ones or pages"
        )
    if temperature_len > 0:
        raise decline("the reference does not know temperatures by the place of a token")


def _of_scale(x: Tensor, scale: float, to: torch.dtype) -> Tensor:
    return (x.float() * scale).to(to) if x.element_size() == 1 else x.to(to)
