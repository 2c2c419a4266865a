"""Comparison with float64, and tolerances that follow from the dtype of the result."""

from __future__ import annotations

import torch

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
# Relative to the largest value of the expected tensor: a few roundings of the format.
_TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def error(result: torch.Tensor, expected: torch.Tensor) -> float:
    """The largest difference, relative to the largest expected value (or to 1)."""
    assert result.shape == expected.shape, f"{tuple(result.shape)} != {tuple(expected.shape)}"
    if expected.numel() == 0:
        return 0.0
    assert torch.isfinite(result.double()).all()
    scale = max(1.0, expected.abs().max().item())
    return (result.detach().double() - expected.detach().double()).abs().max().item() / scale


def agrees(result: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether ``result`` is ``expected``, computed in float64, up to the rounding of ``dtype``."""
    return error(result, expected) <= _TOLERANCE[dtype or result.dtype]


def tensor(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Numbers around 0, the same for the same arguments."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)


def wide(x: torch.Tensor, grad: bool = False) -> torch.Tensor:
    """A float64 copy of exactly these values."""
    return x.detach().double().clone().requires_grad_(grad)


def non_contiguous(x: torch.Tensor) -> torch.Tensor:
    """The same values in every second place of a larger tensor: not contiguous."""
    spread = torch.stack((x, torch.full_like(x, float("nan"))), -1).flatten(-2)
    view = spread[..., ::2]
    assert x.numel() < 2 or not view.is_contiguous()
    return view
