"""Multi-head latent attention: keys and values of a token are one row, which all heads expand.

In the **latent form** (`latent_attention`, for the tokens after a prompt) queries meet the rows themselves: a row is
key and, without its last part, value of every head. In the **expanded form** (`expanded_attention`, for prompts)
each head has keys and values of its own. Both compute the same; parts of a context are put together by
`merge_attention`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flagos_serving.declaration import decline

_NONE = float("-inf")


def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, cap: float = 0.0
) -> tuple[Tensor, Tensor]:
    """One sequence: q [queries, heads, dim] over k, v [keys, heads, dim], or a part of these heads for several of q.

    Returns the output and the logarithm [heads, queries] of the sum that its weights are divided by.
    """
    of_one = q.shape[1] // k.shape[1]
    if of_one > 1:
        k, v = (x.repeat_interleave(of_one, dim=1) for x in (k, v))
    scores = torch.einsum("qhd,khd->hqk", q.float(), k.float()) * scale
    if cap:
        scores = cap * torch.tanh(scores / cap)
    if causal:
        queries, keys = scores.shape[1:]
        places = torch.arange(keys, device=q.device)
        last = torch.arange(keys - queries, keys, device=q.device)
        scores = scores.masked_fill(places[None, :] > last[:, None], _NONE)
    sums = torch.logsumexp(scores, dim=-1)
    weights = torch.exp(scores - sums[..., None])
    return torch.einsum("hqk,khd->qhd", weights, v.float()).to(q.dtype), sums


def latent_attention(
    q: Tensor,
    rows: Tensor,
    values: Tensor,
    out: Tensor,
    sums: Tensor,
    block_table: Tensor,
    lengths: Tensor,
    work: Tensor,
    splits: int,
    scale: float,
    block_size: int = 1,
    cap: float = 0.0,
    k_scale: Tensor | None = None,
    v_scale: Tensor | None = None,
    is_mla: bool = False,
) -> None:
    """Signature of vLLM's ``decode_attention_fwd``.

    One query of each sequence, q [sequences, heads, latent + rotary], over rows [blocks, block size, 1, the same]
    and values, which are their first part; writes out [sequences, heads, latent] and sums [sequences, heads].
    """
    if rows.shape[2] != 1:
        raise decline("the reference of latent attention takes one row for all heads")
    heads = q.shape[1]
    for row, length in enumerate(lengths.tolist()):
        if not length:  # a place that fills a batch up
            out[row], sums[row] = 0, _NONE
            continue
        blocks = block_table[row, : -(-length // block_size)].long()
        keys = _wide(rows[blocks], k_scale).flatten(0, 1)[:length].expand(-1, heads, -1)
        theirs = _wide(values[blocks], v_scale).flatten(0, 1)[:length].expand(-1, heads, -1)
        made, sum_of = _attend(q[row, None], keys, theirs, scale, False, cap)
        out[row], sums[row] = made[0], sum_of[:, 0].to(sums.dtype)


def _wide(found: Tensor, scale: Tensor | None) -> Tensor:
    if found.element_size() > 1:
        return found
    return found.float() if scale is None else found.float() * scale.float()


def expanded_attention(
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
    """Q [tokens, heads, dim] of sequences that begin at ``q_starts`` int32 [sequences + 1], over k and v of theirs.

    With ``causal`` the last query of a sequence has its last key. Returns [tokens, heads, dim of v].
    """
    return expanded_attention_to_merge(
        q, k, v, q_starts, k_starts, most_queries, most_keys, scale, causal
    )[0]


def expanded_attention_to_merge(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    most_queries: int,
    most_keys: int,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """The same with the logarithms of sums, float32 [heads, tokens]; -inf for a query without keys."""
    out = q.new_zeros(q.shape[0], q.shape[1], v.shape[2])
    sums = torch.full((q.shape[1], q.shape[0]), _NONE, dtype=torch.float32, device=q.device)
    q_places, k_places = q_starts.tolist(), k_starts.tolist()
    for row in range(len(q_places) - 1):
        part, keys = slice(*q_places[row : row + 2]), slice(*k_places[row : row + 2])
        if part.start < part.stop and keys.start < keys.stop:
            out[part], sums[:, part] = _attend(q[part], k[keys], v[keys], scale, causal)
    return out, sums


def merge_attention(
    output: Tensor,
    prefix_output: Tensor,
    prefix_lse: Tensor,
    suffix_output: Tensor,
    suffix_lse: Tensor,
    output_lse: Tensor | None = None,
    prefill_tokens_with_context: int | None = None,
    output_scale: Tensor | None = None,
) -> None:
    """Signature of vLLM's ``merge_attn_states``: attention to two parts of the keys as one to both.

    Outputs are [tokens, heads, dim], ``*_lse`` the logarithms [heads, tokens]. Of the tokens from
    ``prefill_tokens_with_context`` on the suffix is all.
    """
    if output_scale is not None:
        raise decline("the reference of merged attention does not round its output to 8 bits")
    before = prefix_lse.float().clone()
    if prefill_tokens_with_context is not None:
        before[:, prefill_tokens_with_context:] = _NONE
    before = before.masked_fill(before == -_NONE, _NONE)
    after = suffix_lse.float()
    after = after.masked_fill(after == -_NONE, _NONE)
    both = torch.logaddexp(before, after)
    nothing = both == _NONE

    def share(of: Tensor, sums: Tensor) -> Tensor:
        weight = torch.exp(sums - both).masked_fill(nothing, 0).t()[..., None]
        return torch.where(weight == 0, 0, weight * of.float())

    merged = share(prefix_output, before) + share(suffix_output, after)
    output.copy_(merged.view_as(output))
    if output_lse is not None:
        output_lse.copy_(both)


def mask_empty_context(
    lse: Tensor, output: Tensor, query_start_loc: Tensor, context_start_loc: Tensor
) -> None:
    """Signature of vLLM's function: queries of a sequence without context have no part of the merged output."""
    queries = query_start_loc.long().diff()
    empty = torch.repeat_interleave(context_start_loc.long().diff() == 0, queries)
    lse[:, : empty.shape[0]].masked_fill_(empty[None], _NONE)
    output[: empty.shape[0]].masked_fill_(empty[:, None, None], 0)


def gather_and_maybe_dequant_cache(
    cache: Tensor,
    result: Tensor,
    block_table: Tensor,
    starts: Tensor,
    sequences: Tensor,
    tokens: int,
    kv_cache_dtype: str,
    scale: Tensor,
    first: Tensor | None,
) -> None:
    """Rows of a paged cache [blocks, block size, dim] into result [at least tokens, dim], sequence by sequence.

    Token t is of ``sequences[t]``, which begins at ``starts`` of it in result, and at ``first`` of it in its cache.
    """
    row = sequences[:tokens].long()
    place = torch.arange(tokens, device=cache.device) - starts.long()[row]
    if first is not None:
        place = place + first.long()[row]
    size = cache.shape[1]
    found = cache[block_table.long()[row, place // size], place % size]
    if found.element_size() == 1:
        eight: Any = found if found.dtype.is_floating_point else found.view(torch.float8_e4m3fn)
        found = eight.float() * scale.float()
    result[:tokens] = found.to(result.dtype)
