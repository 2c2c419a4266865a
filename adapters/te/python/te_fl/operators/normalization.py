"""LayerNorm and RMSNorm over the last dimension.

γ is ``weight``, or 1 + ``weight`` with ``zero_centered_gamma``. Statistics are float32 (float64 for
float64), one per row, flattened, as TransformerEngine returns them. torch's fused kernels compute the
results. Operands are converted to float32 first where the kernels would round differently from
TransformerEngine.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.operators.arguments import assign, compute_dtype, has_kernel, renamed, torch_dtype
from te_fl.operators.quantization import check, quantize

_aten = torch.ops.aten
# torch's CPU backend has no such kernel.
_FUSED = "aten::_fused_rms_norm_backward"


def _operands(
    gamma: torch.Tensor, zero_centered: bool, *tensors: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """γ and the tensors, in a dtype in which torch's kernels are as exact as TransformerEngine's."""
    x, dtype = tensors[0], gamma.dtype
    if gamma.shape != x.shape[-1:]:
        raise ValueError(
            f"gamma must have the shape {tuple(x.shape[-1:])}, the last dimension of {tuple(x.shape)}, "
            f"got {tuple(gamma.shape)}"
        )
    # Kernels of accelerators compute 16-bit operands in float32. Only 1 + γ would round to 16 bits.
    wide = dtype == torch.float32 or dtype == torch.float64
    if wide or (not zero_centered and has_kernel(_FUSED, x)):
        for tensor in tensors:
            if tensor.dtype != dtype:
                break
        else:
            return (gamma + 1 if zero_centered else gamma, *tensors)
    dtype = compute_dtype(gamma, *tensors)
    gamma = gamma.to(dtype)
    return (gamma + 1 if zero_centered else gamma, *(t.to(dtype) for t in tensors))


def _deliver(y: torch.Tensor, x: torch.Tensor, out: Any, quantizer: Any, otype: Any) -> Any:
    dtype = (torch_dtype(otype) if quantizer is None else None) or x.dtype
    if y.dtype != dtype:
        y = y.to(dtype)
    if quantizer is not None:
        return quantize(y, quantizer, out)
    return y if out is None else assign(out, y.to(out.dtype))


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
    """(y, mean, 1/σ), with y = (x − mean)/σ · γ + ``bias``."""
    check(quantizer)
    tensors = (input,) if bias is None else (input, bias)
    gamma, x, *rest = _operands(weight, zero_centered_gamma, *tensors)
    beta = rest[0] if rest else None
    y, mean, rsigma = torch.native_layer_norm(x, x.shape[-1:], gamma, beta, eps)
    return _deliver(y, input, ln_out, quantizer, otype), mean.reshape(-1), rsigma.reshape(-1)


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
    """(dx, dγ, dβ)."""
    g, x_, dz_ = _operands(gamma, zero_centered_gamma, x, dz)
    rows = (*x.shape[:-1], 1)
    statistics = torch.float64 if x_.dtype == torch.float64 else torch.float32
    dx, dgamma, dbeta = _aten.native_layer_norm_backward(
        dz_.contiguous(),
        x_.contiguous(),
        x.shape[-1:],
        mu.to(statistics).reshape(rows),
        rsigma.to(statistics).reshape(rows),
        g,
        g,  # in the place of the bias: the kernel reads only its shape
        [True, True, True],
    )
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
    """(y, None, 1/rms), with y = x/rms · γ and rms = √(mean x² + ``eps``)."""
    check(quantizer)
    gamma, x = _operands(weight, zero_centered_gamma, input)
    if has_kernel(_FUSED, x):
        y, rsigma = _aten._fused_rms_norm(x, x.shape[-1:], gamma, eps)
    else:
        rsigma = x.square().mean(-1, keepdim=True).add_(eps).rsqrt_()
        y = (x * rsigma).mul_(gamma)
    return _deliver(y, input, ln_out, quantizer, otype), None, rsigma.reshape(-1)


def _rmsnorm_bwd(
    dz: torch.Tensor,
    x: torch.Tensor,
    rsigma: torch.Tensor,
    gamma: torch.Tensor,
    zero_centered: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    g, x_, dz_ = _operands(gamma, zero_centered, x, dz)
    statistics = torch.float64 if x_.dtype == torch.float64 else torch.float32
    r = rsigma.to(statistics).reshape(*x.shape[:-1], 1)
    if has_kernel(_FUSED, x_):
        fused: tuple[torch.Tensor, torch.Tensor] = _aten._fused_rms_norm_backward(
            dz_.contiguous(), x_.contiguous(), x.shape[-1:], r, g, [True, True]
        )
        return fused
    normalized = x_ * r
    weighted = dz_ * g
    dx = r * (weighted - normalized * (weighted * normalized).mean(-1, keepdim=True))
    return dx, (dz_ * normalized).reshape(-1, x.shape[-1]).sum(0)


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
