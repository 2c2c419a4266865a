"""Dropout with a mask of one bit per element.

Bit i of byte j, the lowest first, belongs to element 8j + i of the flattened input; a set bit keeps it. The
random numbers are those of ``default.flagos_rs``: both drop the same elements after the same seed.
"""

from __future__ import annotations

import torch

from te_fl.operators.arguments import assign
from te_fl.reference.precision import wide


def dropout_fwd(
    input: torch.Tensor, dropout_probability: float, out: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(kept elements / (1 − p), 0 for the others; mask, uint8 of ⌈elements / 8⌉)."""
    _check(dropout_probability)
    rows = (input.numel() + 7) // 8
    mask_bits = torch.rand(rows * 8, device=input.device) >= dropout_probability
    bit = 2 ** torch.arange(8, device=input.device)
    mask = (mask_bits.view(rows, 8) * bit).sum(1).to(torch.uint8)
    return _apply(input, mask_bits[: input.numel()], dropout_probability, out), mask


def dropout_bwd(
    grad_output: torch.Tensor,
    mask: torch.Tensor,
    dropout_probability: float,
    grad_input: torch.Tensor | None = None,
) -> torch.Tensor:
    """Gradients of kept elements / (1 − p), 0 for the others. Takes a mask of one byte per element, too."""
    _check(dropout_probability)
    count = grad_output.numel()
    if mask.numel() == count and count > 1:
        mask_bits = mask.flatten() != 0
    else:
        bit = 2 ** torch.arange(8, device=mask.device)
        mask_bits = (mask.long().view(-1, 1) // bit % 2 == 1).flatten()[:count]
    return _apply(grad_output, mask_bits, dropout_probability, grad_input)


def _check(probability: float) -> None:
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"dropout_probability must be within 0 and 1, got {probability}")


def _apply(
    x: torch.Tensor, mask_bits: torch.Tensor, probability: float, out: torch.Tensor | None
) -> torch.Tensor:
    # With p = 1 nothing is kept.
    scale = 1.0 / (1.0 - probability) if probability < 1.0 else 0.0
    y = torch.where(mask_bits.view(x.shape), wide(x) * scale, 0.0).to(x.dtype)
    return y if out is None else assign(out, y.to(out.dtype))
