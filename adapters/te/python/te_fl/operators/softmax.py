"""Scaled softmaxes over the last dimension, with the masks of attention.

torch's kernels compute in float32, also for tensors of 16 bits. They get 16-bit operands only if the
product with the scale is exact: if the scale is a power of 2.
"""

from __future__ import annotations

from math import frexp

import torch

from te_fl.operators.arguments import renamed

_MASKED = -10000.0
_WIDE = (torch.float32, torch.float64)


def _is_exact(scale: float, dtype: torch.dtype) -> bool:
    """Whether x·``scale`` is exact in ``dtype``. A scale above 1 could leave the range of float16."""
    return dtype in _WIDE or (0.0 < scale <= 1.0 and frexp(scale)[0] == 0.5)


def _scaled(x: torch.Tensor, scale: float) -> torch.Tensor:
    """A new tensor ``scale``·x, in float32 where 16 bits would round."""
    if _is_exact(scale, x.dtype):
        return x * scale
    # A float32 operand makes torch compute and return float32 in one pass.
    return x * torch.full((1,), scale, dtype=torch.float32, device=x.device)


def _softmax(scores: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    y = torch.softmax(scores, -1)
    return y if y.dtype == dtype else y.to(dtype)


def scaled_softmax_forward(input: torch.Tensor, scale: float) -> torch.Tensor:
    """softmax(``scale``·x)."""
    return _softmax(_scaled(input, scale), input.dtype)


@renamed(
    output_grads_="output_grad_",
    output_grad="output_grad_",
    softmax_output="softmax_results_",
    scale="scale_factor",
)
def scaled_softmax_backward(
    output_grad_: torch.Tensor, softmax_results_: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """The gradient of every softmax of this file. A masked result is 0, so its gradient is 0."""
    dy, y = output_grad_, softmax_results_
    dx: torch.Tensor
    if dy.dtype == y.dtype and _is_exact(scale_factor, dy.dtype):
        dx = torch.ops.aten._softmax_backward_data(dy, y, -1, dy.dtype)
        return dx.mul_(scale_factor)
    wide = torch.float64 if dy.dtype == torch.float64 else torch.float32
    dx = torch.ops.aten._softmax_backward_data(dy.to(wide), y.to(wide), -1, wide)
    return dx.mul_(scale_factor).to(dy.dtype)


@renamed(scale="scale_factor")
def scaled_masked_softmax_forward(
    input: torch.Tensor, mask: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """softmax(``scale_factor``·x) over the unmasked elements; a fully masked row is 0.

    An integer or bool mask, broadcast to ``input``, masks where it is 1. A floating-point mask is added to
    the scaled input.
    """
    if mask.is_floating_point():
        wide = torch.float64 if input.dtype == torch.float64 else torch.float32
        # One pass: input·scale + mask in the wider dtype.
        scores = torch.add(mask.to(wide), input, alpha=scale_factor)
        return _softmax(scores, input.dtype)
    masked = mask == 1
    y = _softmax(_scaled(input, scale_factor).masked_fill_(masked, _MASKED), input.dtype)
    return y.masked_fill(masked.all(-1, keepdim=True), 0.0)


@renamed(scale="scale_factor")
def scaled_aligned_causal_masked_softmax_forward(
    input: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """Row i of (..., q, k) attends to columns up to i + k − q: aligned with the lower right corner."""
    rows, columns = input.shape[-2:]
    future = torch.ones(rows, columns, dtype=torch.bool, device=input.device)
    future = future.triu_(columns - rows + 1)
    scores = _scaled(input, scale_factor).masked_fill_(future, float("-inf"))
    y = _softmax(scores, input.dtype)
    # With more rows than columns the first rows attend to nothing.
    return y.masked_fill(future.all(-1, keepdim=True), 0.0) if rows > columns else y


@renamed(scale="scale_factor")
def scaled_upper_triang_masked_softmax_forward(
    input: torch.Tensor, scale_factor: float
) -> torch.Tensor:
    """Row i of square (..., s, s) attends to columns up to i."""
    if input.shape[-1] != input.shape[-2]:
        raise ValueError(
            f"input must be square in its last two dimensions, got {tuple(input.shape)}; "
            "scaled_aligned_causal_masked_softmax_forward takes others"
        )
    return scaled_aligned_causal_masked_softmax_forward(input, scale_factor)
