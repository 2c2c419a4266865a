"""Dropout with a mask of one bit per element, as TransformerEngine keeps it.

Bit i of byte j, the lowest first, belongs to element 8j + i of the flattened input. A set bit keeps it.
"""

from __future__ import annotations

import torch

from te_fl.operators.arguments import assign


def _weights(device: torch.device) -> torch.Tensor:
    return 1 << torch.arange(8, device=device, dtype=torch.uint8)


def dropout_fwd(
    input: torch.Tensor, dropout_probability: float, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(``input`` with dropped elements 0 and the others divided by 1 − p, mask)."""
    _check(dropout_probability)
    bytes_ = (input.numel() + 7) // 8
    mask_bits = torch.rand(bytes_ * 8, device=input.device) >= dropout_probability
    mask = (mask_bits.view(bytes_, 8) * _weights(input.device)).sum(1, dtype=torch.uint8)
    return _apply(input, mask_bits[: input.numel()], dropout_probability, out), mask


def dropout_bwd(
    grad_output: torch.Tensor,
    mask: torch.Tensor,
    dropout_probability: float,
    grad_input: torch.Tensor | None = None,
) -> torch.Tensor:
    """The gradient. Also accepts the mask of TransformerEngine-FL's reference, of one byte per element."""
    _check(dropout_probability)
    count = grad_output.numel()
    if mask.numel() == count and count > 1:
        mask_bits = mask.flatten() != 0
    else:
        mask_bits = (mask.view(-1, 1) & _weights(mask.device)).flatten()[:count] != 0
    return _apply(grad_output, mask_bits, dropout_probability, grad_input)


def _check(probability: float) -> None:
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"dropout_probability must be within 0 and 1, got {probability}")


def _apply(
    x: torch.Tensor, mask_bits: torch.Tensor, probability: float, out: torch.Tensor | None
) -> torch.Tensor:
    scale = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
    # Not a product with the mask: a dropped element may be infinite, and ∞·0 is not 0.
    y = torch.where(mask_bits.view(x.shape), x * scale, 0.0).to(x.dtype)
    return y if out is None else assign(out, y.to(out.dtype))
