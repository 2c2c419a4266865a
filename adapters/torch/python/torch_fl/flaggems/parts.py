"""FlagGems' kernels for the operators that torch makes composite ones of.

torch derives the gradient of `rms_norm` from its parts, so that FlagGems' function for the whole of it cannot serve
it: its kernels serve the parts. Each function here has the signature of torch's operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from flagos import UnsupportedError
from torch_fl.flaggems import package


def fused_rms_norm(
    input: torch.Tensor,
    normalized_shape: list[int],
    weight: torch.Tensor | None,
    eps: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`aten::_fused_rms_norm`: the result, and 1 / rms in float32, of the leading dimensions and as many ones."""
    _check(input, weight)
    if eps is None:
        eps = torch.finfo(torch.float32).eps  # of the type torch computes in
    result, rstd = package.inner("rms_norm_forward")(input, normalized_shape, weight, eps)
    leading = input.shape[: input.dim() - len(normalized_shape)]
    return result, rstd.view(*leading, *(1 for _ in normalized_shape))


def fused_rms_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    normalized_shape: list[int],
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    output_mask: list[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """`aten::_fused_rms_norm_backward`: the gradients of the input and of the weight."""
    _check(input, weight)
    dx, dw = package.inner("rms_norm_backward")(
        grad_out, input, rstd.reshape(-1), normalized_shape, weight
    )
    wanted_dx, wanted_dw = output_mask
    return dx if wanted_dx else None, dw.view(normalized_shape) if wanted_dw else None


def _check(input: torch.Tensor, weight: torch.Tensor | None) -> None:
    if weight is None:
        raise UnsupportedError("FlagGems' rms_norm has a weight")
    if input.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise UnsupportedError(f"FlagGems' rms_norm computes in float32, not in {input.dtype}")
    if math.prod(input.shape) == 0:
        raise UnsupportedError("FlagGems' rms_norm takes no empty tensor")


PARTS: dict[str, tuple[str, Callable[..., Any]]] = {
    "_fused_rms_norm": ("rms_norm", fused_rms_norm),
    "_fused_rms_norm_backward": ("rms_norm", fused_rms_norm_backward),
}
"""Operators of torch, each with the overload of FlagGems whose kernels serve it, and the function."""

CALLED_BY = {
    "_fused_rms_norm": ("nn.functional.rms_norm", "function"),
    "_fused_rms_norm_backward": ("nn.functional.rms_norm", "gradient"),
}
"""The entries of torch's operator database, and their forms, that call them on a GPU; on the CPU none does."""
