"""RMS norm and layer norm over the last dimension."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from lightx2v_fl.operators.implementations import declare, decline, flaggems_function


def _rms_native(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """x / sqrt(mean(x²) + eps) · weight, in x's shape and dtype. ``weight`` is [last], or None."""
    if weight is not None and weight.dtype != x.dtype:
        weight = weight.to(x.dtype)
    return F.rms_norm(x, (x.shape[-1],), weight, eps)


def _rms_reference(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    wide = x.float()
    normed = wide * torch.rsqrt(wide.pow(2).mean(dim=-1, keepdim=True) + eps)
    # Rounded before the multiplication by the weight, as in LightX2V's own formula.
    normed = normed.to(x.dtype)
    return normed if weight is None else (normed * weight).to(x.dtype)


def _rms_flaggems(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    if weight is None:
        raise decline("FlagGems' rms_norm needs a weight")
    kernel = flaggems_function("ops.rms_norm", "rms_norm")
    result: Tensor = kernel(x.contiguous(), (x.shape[-1],), weight.to(x.dtype), eps)
    return result


rms_norm = declare("rms_norm", native=_rms_native, reference=_rms_reference, flaggems=_rms_flaggems)


def _layer_native(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    """(x - mean) / sqrt(var + eps) · weight + bias, in x's shape and dtype."""
    return F.layer_norm(x, (x.shape[-1],), _cast(weight, x), _cast(bias, x), eps)


def _layer_reference(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    wide = x.float()
    variance, mean = torch.var_mean(wide, dim=-1, keepdim=True, correction=0)
    normed = (wide - mean) * torch.rsqrt(variance + eps)
    if weight is not None:
        normed = normed * weight.float()
    if bias is not None:
        normed = normed + bias.float()
    return normed.to(x.dtype)


def _layer_flaggems(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> Tensor:
    kernel = flaggems_function("ops.layernorm", "layer_norm")
    # FlagGems also returns the statistics for a backward pass.
    output, _mean, _rstd = kernel(x, (x.shape[-1],), _cast(weight, x), _cast(bias, x), eps)
    result: Tensor = output
    return result


def _cast(parameter: Tensor | None, x: Tensor) -> Tensor | None:
    return None if parameter is None else parameter.to(x.dtype)


layer_norm = declare(
    "layer_norm", native=_layer_native, reference=_layer_reference, flaggems=_layer_flaggems
)
