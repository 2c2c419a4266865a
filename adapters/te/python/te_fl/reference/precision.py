"""The precision of the formulas: float32, or float64 where an operand has it. Results are rounded once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch


def wide(x: torch.Tensor) -> torch.Tensor:
    """``x`` in float64 if it has this dtype, else in float32."""
    return x if x.dtype == torch.float64 else x.float()


def gradients(
    function: Callable[..., torch.Tensor], inputs: Sequence[torch.Tensor], grad: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    """The gradients of Σ ``function``(*inputs) · ``grad`` with respect to ``inputs``, not rounded."""
    # A copy, because a tensor of torch.inference_mode cannot require a gradient.
    with torch.inference_mode(False), torch.enable_grad():
        leaves = [wide(x.detach()).clone().requires_grad_() for x in inputs]
        y = function(*leaves)
        return torch.autograd.grad(y, leaves, grad.detach().to(y.dtype))
