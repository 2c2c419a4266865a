"""The calls that `flagos tune` measures, one for each overload, on tensors of a class of shapes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Call:
    """A call of an overload with its arguments."""

    op: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def __call__(self) -> Any:
        """Make the call."""
        return self.op(*self.args, **self.kwargs)


_SIZES = {"tiny": 8, "small": 64, "large": 4096}

# Overloads that take one tensor.
_UNARY = [
    "abs",
    "acos",
    "angle",
    "asin",
    "asinh",
    "atan",
    "bitwise_not",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "elu",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "isinf",
    "isnan",
    "isneginf",
    "leaky_relu",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_sigmoid",
    "logical_not",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sigmoid_",
    "sgn",
    "silu",
    "silu_",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "_log_softmax",
    "_softmax",
    "abs_",
    "cos_",
    "exp_",
    "gelu_",
    "neg_",
    "relu_",
    "rsqrt_",
    "sin_",
    "sqrt_",
    "tanh_",
]
_BINARY = [
    "add.Tensor",
    "mul.Tensor",
    "sub.Tensor",
    "div.Tensor",
    "maximum",
    "minimum",
    "pow.Tensor_Tensor",
    "eq.Tensor",
    "ne.Tensor",
    "lt.Tensor",
    "le.Tensor",
    "gt.Tensor",
    "ge.Tensor",
    "atan2",
    "logaddexp",
    "hypot",
    "fmin",
    "logical_and",
    "logical_or",
    "add_.Tensor",
    "mul_.Tensor",
    "sub_.Tensor",
    "div_.Tensor",
]
_SCALAR = [
    "add.Scalar",
    "mul.Scalar",
    "sub.Scalar",
    "div.Scalar",
    "pow.Tensor_Scalar",
    "eq.Scalar",
    "gt.Scalar",
    "lt.Scalar",
]
_REDUCTIONS = [
    "sum",
    "mean",
    "max",
    "min",
    "amax",
    "prod",
    "all",
    "any",
    "argmax",
    "argmin",
    "var_mean.correction",
    "std.correction",
]


@dataclass(frozen=True)
class _Operands:
    """The tensors of a class of shapes."""

    n: int
    dtype: torch.dtype
    device: str
    x: torch.Tensor  # of the shape [n, n], as y and mask
    y: torch.Tensor
    mask: torch.Tensor
    vector: torch.Tensor
    half: torch.Tensor  # matrices of the type of products
    half_other: torch.Tensor
    batch: torch.Tensor
    batch_other: torch.Tensor
    bias: torch.Tensor
    index: torch.Tensor
    table: torch.Tensor
    rstd: torch.Tensor


def measured() -> set[str]:
    """The overloads that are measured. Creates no tensor on a device."""
    return set(calls("small", device="meta"))


def calls(
    shape: str,
    dtype: torch.dtype = torch.float32,
    device: str = "flagos",
    matrices: torch.dtype = torch.bfloat16,
) -> dict[str, Call]:
    """For each overload one call on tensors of the class `small` or `large`; `tiny` is for checking values."""
    t = _operands(_SIZES[shape], dtype, device, matrices)
    return {
        **_elementwise(t),
        **_reductions(t),
        **_products(t),
        **_normalizations(t),
        **_choices(t),
        **_gradients(t),
        **_fills(t),
    }


def _operands(n: int, dtype: torch.dtype, device: str, matrices: torch.dtype) -> _Operands:
    generator = torch.Generator().manual_seed(1)

    def random(*size: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.rand(size, generator=generator).add(0.25).to(kind).to(device)

    x, y, vector = random(n, n), random(n, n), random(n)
    half, half_other = (random(n, n, kind=matrices) for _ in range(2))
    batch, batch_other = (random(8, n // 4, n // 4, kind=matrices) for _ in range(2))
    return _Operands(
        n=n,
        dtype=dtype,
        device=device,
        x=x,
        y=y,
        vector=vector,
        half=half,
        half_other=half_other,
        batch=batch,
        batch_other=batch_other,
        bias=random(n, kind=matrices),
        mask=(x > 0.7).to(device),
        index=torch.arange(0, n, 2).to(device),
        table=random(4 * n, 64),
        rstd=random(n, 1, kind=torch.float32),
    )


def _bound(name: str, *args: Any, **kwargs: Any) -> Call:
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    return Call(op, args, kwargs)


def _all(several: dict[str, tuple[Any, ...]]) -> dict[str, Call]:
    return {name: _bound(name, *args) for name, args in several.items()}


def _elementwise(t: _Operands) -> dict[str, Call]:
    softmaxes = dict.fromkeys(("_softmax", "_log_softmax"), (t.x, -1, False))
    several: dict[str, tuple[Any, ...]] = {
        **{name: (t.mask if name == "bitwise_not" else t.x,) for name in _UNARY},
        **softmaxes,
        **dict.fromkeys(_BINARY, (t.x, t.y)),
        **dict.fromkeys(_SCALAR, (t.x, 1.5)),
        "clamp": (t.x, 0.3, 0.9),
        "addcmul": (t.x, t.x, t.y),
        "addcdiv": (t.x, t.x, t.y),
        "where.self": (t.mask, t.x, t.y),
        "masked_fill.Scalar": (t.x, t.mask, 0.0),
    }
    return _all(several)


def _reductions(t: _Operands) -> dict[str, Call]:
    several: dict[str, tuple[Any, ...]] = {
        **{name: (t.x, [-1]) if name == "amax" else (t.x,) for name in _REDUCTIONS},
        "sum.dim_IntList": (t.x, [-1]),
        "mean.dim": (t.x, [-1]),
        "max.dim": (t.x, -1),
        "min.dim": (t.x, -1),
        "cumsum": (t.x, -1),
    }
    return _all(several)


def _products(t: _Operands) -> dict[str, Call]:
    several: dict[str, tuple[Any, ...]] = {
        "mm": (t.half, t.half_other),
        "bmm": (t.batch, t.batch_other),
        "addmm": (t.bias, t.half, t.half_other),
        "mv": (t.x, t.vector),
        "dot": (t.vector, t.vector),
    }
    return _all(several)


def _normalizations(t: _Operands) -> dict[str, Call]:
    several: dict[str, tuple[Any, ...]] = {
        "native_layer_norm": (t.x, [t.n], t.vector, t.vector, 1e-5),
        "_fused_rms_norm": (t.x, [t.n], t.vector, 1e-5),
        "_fused_rms_norm_backward": (t.y, t.x, [t.n], t.rstd, t.vector, [True, True]),
    }
    return _all(several)


def _choices(t: _Operands) -> dict[str, Call]:
    several: dict[str, tuple[Any, ...]] = {
        "embedding": (t.table, t.index),
        "index_select": (t.x, 0, t.index),
        "gather": (t.x, 1, t.index.expand(t.n, -1)),
        "cat": ([t.x, t.y],),
        "stack": ([t.x, t.y],),
        "triu": (t.x,),
        "tril": (t.x,),
        "topk": (t.x, min(8, t.n)),
        "sort": (t.x,),
        "flip": (t.x, [0]),
    }
    return _all(several)


def _gradients(t: _Operands) -> dict[str, Call]:
    several: dict[str, tuple[Any, ...]] = {
        "threshold_backward": (t.x, t.y, 0.5),
        "silu_backward": (t.x, t.y),
        "gelu_backward": (t.x, t.y),
        "tanh_backward": (t.x, t.y),
        "sigmoid_backward": (t.x, t.y),
        "_softmax_backward_data": (t.x, t.y, -1, t.dtype),
    }
    return _all(several)


def _fills(t: _Operands) -> dict[str, Call]:
    made = {"dtype": t.dtype, "device": t.device}
    return {
        "fill_.Scalar": _bound("fill_.Scalar", t.x, 0.5),
        "zeros": _bound("zeros", [t.n, t.n], **made),
        "ones": _bound("ones", [t.n, t.n], **made),
        "full": _bound("full", [t.n, t.n], 0.5, **made),
        "zeros_like": _bound("zeros_like", t.x),
        "ones_like": _bound("ones_like", t.x),
        "full_like": _bound("full_like", t.x, 0.5),
    }
