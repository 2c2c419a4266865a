"""Permutation of tokens to the rows of their experts, and back.

``row_id_map``, int32 of length topK·tokens, has at k·tokens + t the row of the k-th choice of token t, or −1
where the row was dropped.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.reference.precision import gradients, wide


def moe_permute_fwd(
    input: torch.Tensor,
    dtype: Any,
    indices: torch.Tensor,
    num_out_tokens: int,
    workspace: list[torch.Tensor],
    max_expanded_token_num: int,
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """(rows (kept, h) in the order of their experts, row_id_map, ``workspace``).

    ``input`` is (tokens, h), ``indices`` the experts (tokens, topK). A positive ``num_out_tokens`` is the number
    of rows; rows without a token are 0.
    """
    tokens, top_k = indices.shape
    # The choices (token, k), flattened, sorted by expert; those of one expert keep their order.
    choice = torch.argsort(indices.flatten(), stable=True)
    token, k = choice // top_k, choice % top_k
    rows_left = num_out_tokens if num_out_tokens > 0 else tokens * top_k
    row = torch.arange(tokens * top_k, device=input.device)
    row_id_map = torch.empty(top_k, tokens, dtype=torch.int32, device=input.device)
    row_id_map[k, token] = torch.where(row < rows_left, row, -1).int()
    rows = input.new_zeros(rows_left, input.shape[1])
    rows[: tokens * top_k] = input[token[:rows_left]]
    return rows, row_id_map.flatten(), workspace


def _unpermute(rows: torch.Tensor, row_id_map: torch.Tensor, prob: torch.Tensor) -> torch.Tensor:
    """Σₖ prob[t, k] · rows[map[k, t]]; a dropped row counts as 0."""
    # A dropped choice points at a row of zeros behind the others.
    padded = torch.cat((rows, rows.new_zeros(1, rows.shape[1])))
    at = row_id_map.view(prob.shape[1], prob.shape[0]).long()
    at = torch.where(at < 0, rows.shape[0], at)
    return (padded[at] * prob.mT.unsqueeze(-1)).sum(0)


def _weights(
    prob: torch.Tensor | None, tokens: int, top_k: int, like: torch.Tensor
) -> torch.Tensor:
    """``prob`` (tokens, topK), or ones where it is None or empty."""
    if prob is not None and prob.numel() > 0:
        return prob.to(like.dtype)
    return like.new_ones(tokens, top_k)


def moe_unpermute_fwd(
    input: torch.Tensor,
    dtype: Any,
    row_id_map: torch.Tensor,
    prob: torch.Tensor | None,
    num_tokens: int,
    topK: int,
) -> torch.Tensor:
    """The sum (tokens, h) of each token's rows, weighted with ``prob`` (tokens, topK) unless that is empty."""
    rows = wide(input)
    return _unpermute(rows, row_id_map, _weights(prob, num_tokens, topK, rows)).to(input.dtype)


def moe_permute_bwd(
    input: torch.Tensor,
    dtype: Any,
    row_id_map: torch.Tensor,
    prob: torch.Tensor | None,
    num_tokens: int,
    topK: int,
) -> torch.Tensor:
    """The gradient of :func:`moe_permute_fwd`: the sum of the gradients of each token's rows."""
    return moe_unpermute_fwd(input, dtype, row_id_map, prob, num_tokens, topK)


def moe_unpermute_bwd(
    input_bwd: torch.Tensor,
    input_fwd: torch.Tensor,
    dtype: Any,
    row_id_map: torch.Tensor,
    prob: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(gradient of the rows, gradient of ``prob`` in float32, 0 without ``prob``)."""
    tokens = input_bwd.shape[0]
    top_k = row_id_map.numel() // max(tokens, 1)
    weights = _weights(prob, tokens, top_k, wide(input_bwd))
    d_rows, d_prob = gradients(
        lambda rows, w: _unpermute(rows, row_id_map, w), [input_fwd, weights], input_bwd
    )
    if prob is None or prob.numel() == 0:
        d_prob = torch.zeros_like(d_prob)
    return d_rows.to(input_bwd.dtype), d_prob.float()
