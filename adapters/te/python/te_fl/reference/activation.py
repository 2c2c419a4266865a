"""Activations by their definitions, and their gradients by autograd.

A gated activation takes x (..., 2n) as its halves a and b, and returns act(a)·b (..., n). Results have the
dtype of the input, or of the incoming gradient.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from te_fl.reference.precision import gradients, wide
from te_fl.reference.quantization import check, deliver

_Formula = Callable[[torch.Tensor], torch.Tensor]


def gelu(x: torch.Tensor) -> torch.Tensor:
    """x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))."""
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.shape[-1] % 2:
        raise ValueError(f"the last dimension is split into halves, and is odd: {tuple(x.shape)}")
    a, b = x.chunk(2, -1)
    return a, b


def _gated(act: _Formula) -> _Formula:
    def formula(x: torch.Tensor) -> torch.Tensor:
        a, b = _halves(x)
        return act(a) * b

    return formula


def _clamped(limit: float, alpha: float, offset: float) -> _Formula:
    def formula(x: torch.Tensor) -> torch.Tensor:
        a, b = _halves(x)
        a, b = a.clamp(max=limit), b.clamp(-limit, limit)
        return a * torch.sigmoid(alpha * a) * (b + offset)

    return formula


def _forward(formula: _Formula) -> Callable[..., Any]:
    def forward(input: torch.Tensor, quantizer: Any = None) -> Any:
        check(quantizer)
        return deliver(formula(wide(input)), input.dtype, None, quantizer)

    return forward


def _backward(formula: _Formula) -> Callable[..., Any]:
    def backward(grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any = None) -> Any:
        check(quantizer)
        (dx,) = gradients(formula, [fwd_input], grad)
        return deliver(dx, grad.dtype, None, quantizer)

    return backward


def _with_bias(formula: _Formula) -> Callable[..., Any]:
    def backward(
        grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any = None
    ) -> tuple[torch.Tensor, Any]:
        """(the sum of dx over the rows, dx)."""
        check(quantizer)
        (dx,) = gradients(formula, [fwd_input], grad)
        bias = dx.reshape(-1, dx.shape[-1]).sum(0).to(grad.dtype)
        return bias, deliver(dx, grad.dtype, None, quantizer)

    return backward


def clamped_swiglu(
    input: torch.Tensor,
    quantizer: Any = None,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """a·σ(αa)·(b + ``glu_linear_offset``), with a at most ``limit`` and b within ±``limit``."""
    return _forward(_clamped(limit, alpha, glu_linear_offset))(input, quantizer)


def clamped_dswiglu(
    grad: torch.Tensor,
    fwd_input: torch.Tensor,
    quantizer: Any = None,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """The gradient of :func:`clamped_swiglu`: 0 where an operand was clamped."""
    return _backward(_clamped(limit, alpha, glu_linear_offset))(grad, fwd_input, quantizer)


_FORMULAS: dict[str, _Formula] = {
    "gelu": gelu,
    "qgelu": lambda x: x * torch.sigmoid(1.702 * x),
    "relu": torch.relu,
    "srelu": lambda x: torch.relu(x).square(),
    "silu": lambda x: x * torch.sigmoid(x),
}
_GATED: dict[str, _Formula] = {
    "geglu": _gated(_FORMULAS["gelu"]),
    "qgeglu": _gated(_FORMULAS["qgelu"]),
    "reglu": _gated(_FORMULAS["relu"]),
    "sreglu": _gated(_FORMULAS["srelu"]),
    "swiglu": _gated(_FORMULAS["silu"]),
    "glu": _gated(torch.sigmoid),
}

#: Every operator of this file.
OPERATORS: dict[str, Callable[..., Any]] = {
    "clamped_swiglu": clamped_swiglu,
    "clamped_dswiglu": clamped_dswiglu,
    **{name: _forward(formula) for name, formula in {**_FORMULAS, **_GATED}.items()},
    **{f"d{name}": _backward(formula) for name, formula in {**_FORMULAS, **_GATED}.items()},
    **{f"dbias_d{name}": _with_bias(formula) for name, formula in _FORMULAS.items()},
}
