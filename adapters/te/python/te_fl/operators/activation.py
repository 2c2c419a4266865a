"""Activations and their gradients.

Gated activations split the last dimension into halves (a, b) and return act(a)·b. ``dbias_*`` return (sum
over the rows of dx, dx), where dx is the gradient of the activation's input.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from te_fl.operators.quantization import check, quantize

_aten = torch.ops.aten
_Unary = Callable[[torch.Tensor], torch.Tensor]
_Gradient = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_QGELU = 1.702


def _gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


def _dgelu(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    dx: torch.Tensor = _aten.gelu_backward(grad, x, approximate="tanh")
    return dx


def _halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    if x.shape[-1] % 2:
        raise ValueError(f"the last dimension is split into halves, and is odd: {tuple(x.shape)}")
    a, b = x.chunk(2, dim=-1)
    return a, b


def _wide(x: torch.Tensor) -> torch.Tensor:
    """``x`` in at least float32: formulas of several steps would round in 16 bits at each step."""
    return x if x.dtype in (torch.float32, torch.float64) else x.float()


def _sigmoid_gated(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """x·σ(αx)."""
    wide = _wide(x)
    return (wide * torch.sigmoid(alpha * wide)).to(x.dtype)


def _d_sigmoid_gated(grad: torch.Tensor, x: torch.Tensor, alpha: float) -> torch.Tensor:
    wide = _wide(x)
    s = torch.sigmoid(alpha * wide)
    return (grad * (s + alpha * wide * s * (1 - s))).to(grad.dtype)


def _qgelu(x: torch.Tensor) -> torch.Tensor:
    return _sigmoid_gated(x, _QGELU)


def _dqgelu(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return _d_sigmoid_gated(grad, x, _QGELU)


def _drelu(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    dx: torch.Tensor = _aten.threshold_backward(grad, x, 0)
    return dx


def _srelu(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).square()


def _dsrelu(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * (2 * torch.relu(x))


def _dsigmoid(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    dx: torch.Tensor = _aten.sigmoid_backward(grad, torch.sigmoid(x))
    return dx


def _forward(act: _Unary) -> Callable[..., Any]:
    def forward(input: torch.Tensor, quantizer: Any = None) -> Any:
        check(quantizer)
        y = act(input)
        return y if quantizer is None else quantize(y, quantizer)

    return forward


def _gated_forward(act: _Unary) -> Callable[..., Any]:
    def forward(input: torch.Tensor, quantizer: Any = None) -> Any:
        check(quantizer)
        a, b = _halves(input)
        y = act(a) * b
        return y if quantizer is None else quantize(y, quantizer)

    return forward


def _backward(gradient: _Gradient) -> Callable[..., Any]:
    def backward(grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any = None) -> Any:
        check(quantizer)
        dx = gradient(grad, fwd_input)
        return dx if quantizer is None else quantize(dx, quantizer)

    return backward


def _gated_backward(act: _Unary, gradient: _Gradient) -> Callable[..., Any]:
    def backward(grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any = None) -> Any:
        check(quantizer)
        a, b = _halves(fwd_input)
        dx = torch.cat((gradient(grad * b, a), grad * act(a)), dim=-1)
        return dx if quantizer is None else quantize(dx, quantizer)

    return backward


def _with_bias(gradient: _Gradient) -> Callable[..., Any]:
    def backward(
        grad: torch.Tensor, fwd_input: torch.Tensor, quantizer: Any = None
    ) -> tuple[torch.Tensor, Any]:
        check(quantizer)
        dx = gradient(grad, fwd_input)
        bias = dx.reshape(-1, dx.shape[-1]).sum(0)
        return bias, dx if quantizer is None else quantize(dx, quantizer)

    return backward


def clamped_swiglu(
    input: torch.Tensor,
    quantizer: Any = None,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """a·σ(αa)·(b + ``glu_linear_offset``), with a at most ``limit`` and b within ±``limit``.

    TransformerEngine has the offset since 2.15. Older versions use 1.
    """
    check(quantizer)
    a, b = _halves(_wide(input))
    a, b = a.clamp(max=limit), b.clamp(-limit, limit) + glu_linear_offset
    y = (a * torch.sigmoid(alpha * a) * b).to(input.dtype)
    return y if quantizer is None else quantize(y, quantizer)


def clamped_dswiglu(
    grad: torch.Tensor,
    fwd_input: torch.Tensor,
    quantizer: Any = None,
    limit: float = 7.0,
    alpha: float = 1.702,
    glu_linear_offset: float = 1.0,
) -> Any:
    """The gradient of :func:`clamped_swiglu`: 0 where an operand was clamped."""
    check(quantizer)
    raw_a, raw_b = _halves(_wide(fwd_input))
    a, b = raw_a.clamp(max=limit), raw_b.clamp(-limit, limit) + glu_linear_offset
    s = torch.sigmoid(alpha * a)
    da = grad * b * (s + alpha * a * s * (1 - s)) * (raw_a <= limit)
    db = grad * (a * s) * (raw_b.abs() <= limit)
    dx = torch.cat((da, db), dim=-1).to(grad.dtype)
    return dx if quantizer is None else quantize(dx, quantizer)


_ACTIVATIONS: dict[str, tuple[_Unary, _Gradient]] = {
    "gelu": (_gelu, _dgelu),
    "qgelu": (_qgelu, _dqgelu),
    "relu": (torch.relu, _drelu),
    "srelu": (_srelu, _dsrelu),
    "silu": (F.silu, _aten.silu_backward),
}
_GATED: dict[str, tuple[_Unary, _Gradient]] = {
    "geglu": _ACTIVATIONS["gelu"],
    "qgeglu": _ACTIVATIONS["qgelu"],
    "reglu": _ACTIVATIONS["relu"],
    "sreglu": _ACTIVATIONS["srelu"],
    "swiglu": _ACTIVATIONS["silu"],
    "glu": (torch.sigmoid, _dsigmoid),
}

#: Every operator of this file.
OPERATORS: dict[str, Callable[..., Any]] = {
    "clamped_swiglu": clamped_swiglu,
    "clamped_dswiglu": clamped_dswiglu,
    **{name: _forward(act) for name, (act, _) in _ACTIVATIONS.items()},
    **{f"d{name}": _backward(gradient) for name, (_, gradient) in _ACTIVATIONS.items()},
    **{f"dbias_d{name}": _with_bias(gradient) for name, (_, gradient) in _ACTIVATIONS.items()},
    **{name: _gated_forward(act) for name, (act, _) in _GATED.items()},
    **{f"d{name}": _gated_backward(*both) for name, both in _GATED.items()},
}
