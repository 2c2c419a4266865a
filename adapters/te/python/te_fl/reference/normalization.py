"""LayerNorm and RMSNorm over the last dimension, by their definitions.

x is (..., n); γ is ``weight`` (n), or 1 + ``weight`` with ``zero_centered_gamma``. Statistics are float32
(float64 for float64), one per row, flat.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.operators.arguments import compute_dtype, renamed, torch_dtype
from te_fl.reference.quantization import check, deliver


def _gamma(
    weight: torch.Tensor, zero_centered: bool, x: torch.Tensor, dtype: torch.dtype
) -> torch.Tensor:
    if weight.shape != x.shape[-1:]:
        raise ValueError(
            f"gamma must have the shape {tuple(x.shape[-1:])}, the last dimension of {tuple(x.shape)}, "
            f"got {tuple(weight.shape)}"
        )
    return weight.to(dtype) + 1 if zero_centered else weight.to(dtype)


def _sum_of_rows(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(-1, x.shape[-1]).sum(0)


def layernorm_fwd(
    input: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    eps: float,
    ln_out: Any = None,
    quantizer: Any = None,
    otype: Any = None,
    sm_margin: int = 0,
    zero_centered_gamma: bool = False,
) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """(y, mean, 1/σ): y = (x − mean)/σ · γ + ``bias``, σ = √(mean (x − mean)² + ``eps``)."""
    check(quantizer)
    dtype = compute_dtype(input, weight, bias)
    gamma = _gamma(weight, zero_centered_gamma, input, dtype)
    x = input.to(dtype)
    mean = x.mean(-1, keepdim=True)
    rsigma = torch.rsqrt((x - mean).square().mean(-1, keepdim=True) + eps)
    y = (x - mean) * rsigma * gamma
    if bias is not None:
        y = y + bias.to(dtype)
    result = (torch_dtype(otype) if quantizer is None else None) or input.dtype
    return deliver(y, result, ln_out, quantizer), mean.reshape(-1), rsigma.reshape(-1)


@renamed(dy="dz")
def layernorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    mu: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    sm_margin: int = 0,
    zero_centered_gamma: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dx, dγ, dβ). With x̂ = (x − mean)/σ and w = dz·γ: dx = (w − mean w − x̂·mean(w·x̂))/σ."""
    dtype = compute_dtype(dz, x, gamma)
    rows = (*x.shape[:-1], 1)
    r = rsigma.to(dtype).reshape(rows)
    normalized = (x.to(dtype) - mu.to(dtype).reshape(rows)) * r
    dz_ = dz.to(dtype)
    w = dz_ * _gamma(gamma, zero_centered_gamma, x, dtype)
    dx = r * (w - w.mean(-1, keepdim=True) - normalized * (w * normalized).mean(-1, keepdim=True))
    dgamma, dbeta = _sum_of_rows(dz_ * normalized), _sum_of_rows(dz_)
    return dx.to(x.dtype), dgamma.to(gamma.dtype), dbeta.to(gamma.dtype)


def rmsnorm_fwd(
    input: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    ln_out: Any = None,
    quantizer: Any = None,
    otype: Any = None,
    sm_margin: int = 0,
    zero_centered_gamma: bool = False,
) -> tuple[Any, None, torch.Tensor]:
    """(y, None, 1/rms): y = x/rms · γ, rms = √(mean x² + ``eps``)."""
    check(quantizer)
    dtype = compute_dtype(input, weight)
    gamma = _gamma(weight, zero_centered_gamma, input, dtype)
    x = input.to(dtype)
    rsigma = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    result = (torch_dtype(otype) if quantizer is None else None) or input.dtype
    return deliver(x * rsigma * gamma, result, ln_out, quantizer), None, rsigma.reshape(-1)


def _rmsnorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    zero_centered: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dγ), unrounded. With x̂ = x/rms and w = dz·γ: dx = (w − x̂·mean(w·x̂))/rms."""
    dtype = compute_dtype(dz, x, gamma)
    r = rsigma.to(dtype).reshape(*x.shape[:-1], 1)
    normalized = x.to(dtype) * r
    w = dz.to(dtype) * _gamma(gamma, zero_centered, x, dtype)
    dx = r * (w - normalized * (w * normalized).mean(-1, keepdim=True))
    return dx, _sum_of_rows(dz.to(dtype) * normalized)


@renamed(dy="dz")
def rmsnorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    sm_margin: int = 0,
    zero_centered_gamma: bool = False,
    eps: float = 1e-5,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx, dγ). ``eps`` is ignored: ``rsigma`` contains it."""
    dx, dgamma = _rmsnorm_bwd(dz, x, rsigma, gamma, zero_centered_gamma)
    return dx.to(x.dtype), dgamma.to(gamma.dtype)


def rmsnorm_bwd_add(
    dz: torch.Tensor,
    x: torch.Tensor,
    add: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    sm_margin: int = 0,
    zero_centered_gamma: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(dx + ``add``, dγ)."""
    dx, dgamma = _rmsnorm_bwd(dz, x, rsigma, gamma, zero_centered_gamma)
    return (dx + add).to(x.dtype), dgamma.to(gamma.dtype)
