"""Permutation of tokens to the rows of their experts and back, for mixtures of experts.

``row_id_map``, int32 of length topK·tokens, has at k·tokens + t the row of the k-th choice of token t, or
−1 where the row was dropped.
"""

from __future__ import annotations

from typing import Any

import torch


def moe_permute_fwd(
    input: torch.Tensor,
    dtype: Any,
    indices: torch.Tensor,
    num_out_tokens: int,
    workspace: list[torch.Tensor],
    max_expanded_token_num: int,
) -> tuple[torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """(rows sorted by expert, row_id_map, ``workspace``).

    ``indices`` is (tokens, topK). A positive ``num_out_tokens`` is the number of rows kept.
    """
    tokens, top_k = indices.shape
    order = torch.sort(indices.flatten(), stable=True).indices
    rows_left = num_out_tokens if num_out_tokens > 0 else tokens * top_k
    row = torch.arange(tokens * top_k, device=input.device)
    row = torch.where(row < rows_left, row, -1).to(torch.int32)
    row_id_map = torch.empty(tokens * top_k, dtype=torch.int32, device=input.device)
    # Sorted position p holds choice order[p] % topK of token order[p] // topK.
    row_id_map[(order % top_k) * tokens + order // top_k] = row
    permuted = input[order[:rows_left] // top_k]
    if rows_left > tokens * top_k:
        padding = input.new_zeros(rows_left - tokens * top_k, input.shape[1])
        permuted = torch.cat((permuted, padding))
    return permuted, row_id_map, workspace


def moe_unpermute_fwd(
    input: torch.Tensor,
    dtype: Any,
    row_id_map: torch.Tensor,
    prob: torch.Tensor | None,
    num_tokens: int,
    topK: int,
) -> torch.Tensor:
    """The sum of each token's rows, weighted with ``prob`` (tokens, topK) unless that is empty."""
    rows = row_id_map.view(topK, num_tokens).long()
    present = rows >= 0
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    weight = present.to(wide)
    if prob is not None and prob.numel() > 0:
        weight = weight * prob.to(wide).mT
    total = torch.zeros(num_tokens, input.shape[1], dtype=wide, device=input.device)
    for row, w in zip(rows.clamp(min=0), weight, strict=True):
        total = torch.addcmul(total, input[row].to(wide), w.unsqueeze(-1))
    return total.to(input.dtype)


def moe_permute_bwd(
    input: torch.Tensor,
    dtype: Any,
    row_id_map: torch.Tensor,
    prob: torch.Tensor | None,
    num_tokens: int,
    topK: int,
) -> torch.Tensor:
    """The gradient of :func:`moe_permute_fwd`: each token's rows are added up again."""
    return moe_unpermute_fwd(input, dtype, row_id_map, prob, num_tokens, topK)


def moe_unpermute_bwd(
    input_bwd: torch.Tensor,
    input_fwd: torch.Tensor,
    dtype: Any,
    row_id_map: torch.Tensor,
    prob: torch.Tensor | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(gradient of the rows, gradient of ``prob``)."""
    weighted = prob is not None and prob.numel() > 0
    tokens, top_k = input_bwd.shape[0], row_id_map.numel() // max(input_bwd.shape[0], 1)
    rows = row_id_map.view(top_k, tokens).long()
    present = rows >= 0
    wide = torch.float64 if input_bwd.dtype == torch.float64 else torch.float32
    # One spare row takes the gradients of dropped rows.
    spare = input_fwd.shape[0]
    act_grad = torch.zeros(
        spare + 1, input_bwd.shape[1], dtype=input_bwd.dtype, device=input_bwd.device
    )
    prob_grad = torch.zeros(tokens, top_k, dtype=torch.float32, device=input_bwd.device)
    for k in range(top_k):
        there = present[k].unsqueeze(-1)
        gradient = input_bwd.to(wide)
        if weighted:
            assert prob is not None
            value = input_fwd[rows[k].clamp(min=0)].to(wide) if spare else gradient * 0
            prob_grad[:, k] = ((gradient * value).sum(-1) * present[k]).float()
            gradient = gradient * prob[:, k].to(wide).unsqueeze(-1)
        target = torch.where(present[k], rows[k], spare)
        act_grad[target] = torch.where(there, gradient, 0.0).to(act_grad.dtype)
    return act_grad[:spare], prob_grad
