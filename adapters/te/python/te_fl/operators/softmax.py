"""Scaled softmaxes over the last dimension, with the masks of attention."""

from __future__ import annotations

import torch

from te_fl.operators.arguments import renamed

_MASKED = -10000.0


def scaled_softmax_forward(input: torch.Tensor, scale: float) -> torch.Tensor:
    """softmax(``scale``·x)."""
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    return torch.softmax(input.to(wide) * scale, -1).to(input.dtype)


@renamed(
    output_grads_="output_grad_",
    output_grad="output_grad_",
    softmax_output="softmax_results_",
    scale="scale_factor",
)
def scaled_softmax_backward(
    output_grad_: torch.Tensor, softmax_results_: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """The gradient of every softmax of this file: a masked result is 0, and so is its gradient."""
    wide = torch.float64 if output_grad_.dtype == torch.float64 else torch.float32
    y, dy = softmax_results_.to(wide), output_grad_.to(wide)
    dx: torch.Tensor = torch.ops.aten._softmax_backward_data(dy, y, -1, wide)
    return (dx * scale_factor).to(output_grad_.dtype)


@renamed(scale="scale_factor")
def scaled_masked_softmax_forward(
    input: torch.Tensor, mask: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """softmax over what ``mask`` leaves; a row of which it leaves nothing is 0.

    An integer or bool mask, broadcast to ``input``, masks where it is 1. One of floating-point numbers is
    added to the scaled input.
    """
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    scaled = input.to(wide) * scale_factor
    if mask.is_floating_point():
        return torch.softmax(scaled + mask.to(wide), -1).to(input.dtype)
    masked = mask == 1
    y = torch.softmax(scaled.masked_fill(masked, _MASKED), -1)
    nothing_left = masked.all(-1, keepdim=True)
    return y.masked_fill(nothing_left, 0.0).to(input.dtype)


@renamed(scale="scale_factor")
def scaled_aligned_causal_masked_softmax_forward(
    input: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """Row i of (..., q, k) attends to columns up to i + k − q: aligned with the lower right corner."""
    rows, columns = input.shape[-2:]
    wide = torch.float64 if input.dtype == torch.float64 else torch.float32
    future = torch.ones(rows, columns, dtype=torch.bool, device=input.device)
    future = future.triu(columns - rows + 1)
    scaled = (input.to(wide) * scale_factor).masked_fill(future, float("-inf"))
    y = torch.softmax(scaled, -1)
    # With more rows than columns the first rows attend to nothing.
    return torch.nan_to_num(y, nan=0.0).to(input.dtype) if rows > columns else y.to(input.dtype)


@renamed(scale="scale_factor")
def scaled_upper_triang_masked_softmax_forward(
    input: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """Row i of square (..., s, s) attends to columns up to i."""
    return scaled_aligned_causal_masked_softmax_forward(input, scale_factor)
