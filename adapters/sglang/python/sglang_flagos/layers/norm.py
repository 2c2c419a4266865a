"""Norms over ``sglang::rms_norm`` and ``sglang::fused_add_rms_norm``."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.layernorm import RMSNorm
from torch import Tensor

from sglang_flagos import operators

KEY = "flagos"


def is_plain(norm: Any, dtype: torch.dtype) -> bool:
    """Whether the operators know what this norm computes of values of ``dtype``."""
    return (
        type(norm) is RMSNorm
        and norm.variance_size_override is None
        and not norm.cast_x_before_out_mul
        and not norm.fp32_residual
        and norm.override_orig_dtype is None
        and norm.weight.dtype == dtype
    )


def _forward(
    self: Any,
    x: Tensor,
    residual: Tensor | None = None,
    post_residual_addition: Tensor | None = None,
) -> Any:
    """The norm, or the norm of a sum and the sum. What the operators do not know, SGLang's own code computes."""
    weight = self.weight.data
    if (
        not is_plain(self, x.dtype)
        or x.shape[-1] != self.hidden_size
        or post_residual_addition is not None
        or (residual is not None and residual.dtype != x.dtype)
    ):
        return self.forward_native(x, residual, post_residual_addition)
    x = x.contiguous()
    if residual is None:
        out = torch.empty_like(x)
        operators.rms_norm(out, x, weight, self.variance_epsilon)
        return out
    residual = residual.contiguous()
    operators.fused_add_rms_norm(x, residual, weight, self.variance_epsilon)
    return x, residual


def register() -> None:
    """Lets the layer call the operators."""
    RMSNorm.register_oot_forward(RMSNorm, _forward, KEY)
