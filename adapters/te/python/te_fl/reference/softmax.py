"""Scaled softmaxes over the last dimension of (..., queries, keys), by their definitions.

Results have the dtype of the input. A row that is masked as a whole is 0.
"""

from __future__ import annotations

import torch

from te_fl.operators.arguments import renamed
from te_fl.reference.precision import wide


def scaled_softmax_forward(input: torch.Tensor, scale: float) -> torch.Tensor:
    """softmax(``scale``·x)."""
    return torch.softmax(scale * wide(input), -1).to(input.dtype)


@renamed(
    output_grads_="output_grad_",
    output_grad="output_grad_",
    softmax_output="softmax_results_",
    scale="scale_factor",
)
def scaled_softmax_backward(
    output_grad_: torch.Tensor, softmax_results_: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """``scale``·y·(dy − Σ y·dy), of every softmax of this file: where a score is masked, y is 0."""
    dy, y = wide(output_grad_), wide(softmax_results_)
    dx = scale_factor * y * (dy - (y * dy).sum(-1, keepdim=True))
    return dx.to(output_grad_.dtype)


@renamed(scale="scale_factor")
def scaled_masked_softmax_forward(
    input: torch.Tensor, mask: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """softmax over the scores that ``mask`` leaves.

    ``mask`` broadcasts to ``input``. Where an integer or bool mask is 1, TransformerEngine replaces the scaled
    score by −10000. A floating-point mask is added to the scaled scores.
    """
    scores = scale_factor * wide(input)
    if mask.is_floating_point():
        return torch.softmax(scores + mask, -1).to(input.dtype)
    masked = mask == 1
    y = torch.softmax(scores.masked_fill(masked, -10000.0), -1)
    return y.masked_fill(masked.all(-1, keepdim=True), 0.0).to(input.dtype)


@renamed(scale="scale_factor")
def scaled_aligned_causal_masked_softmax_forward(
    input: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """softmax over keys 0 to i + keys − queries for query i."""
    queries, keys = input.shape[-2:]
    query = torch.arange(queries, device=input.device)[:, None]
    masked = torch.arange(keys, device=input.device) > query + keys - queries
    scores = (scale_factor * wide(input)).masked_fill(masked, float("-inf"))
    y = torch.softmax(scores, -1)
    return y.masked_fill(masked.all(-1, keepdim=True), 0.0).to(input.dtype)


@renamed(scale="scale_factor")
def scaled_upper_triang_masked_softmax_forward(
    input: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """softmax over keys 0 to i for query i of (..., s, s)."""
    if input.shape[-1] != input.shape[-2]:
        raise ValueError(f"input must be square in its last two dimensions: {tuple(input.shape)}")
    return scaled_aligned_causal_masked_softmax_forward(input, scale_factor)
