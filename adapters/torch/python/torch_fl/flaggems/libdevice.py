"""CUDA's libdevice for Triton's interpreter, which has none: its functions, by torch's on the CPU.

Names and types are those of Triton's own declarations (`triton.language.extra.cuda.libdevice`): what a
compiled kernel could not call, an interpreted one cannot either.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch

_FUNCTIONS: dict[str, Callable[..., torch.Tensor]] = {
    "acos": torch.acos,
    "acosh": torch.acosh,
    "asin": torch.asin,
    "asinh": torch.asinh,
    "atan": torch.atan,
    "atan2": torch.atan2,
    "atanh": torch.atanh,
    "ceil": torch.ceil,
    "cos": torch.cos,
    "cosh": torch.cosh,
    "erf": torch.erf,
    "erfinv": torch.erfinv,
    "exp": torch.exp,
    "exp2": torch.exp2,
    "expm1": torch.expm1,
    "floor": torch.floor,
    "fmod": torch.fmod,
    "isinf": torch.isinf,
    "isnan": torch.isnan,
    "isfinite": torch.isfinite,
    "lgamma": torch.lgamma,
    "log": torch.log,
    "log10": torch.log10,
    "log1p": torch.log1p,
    "log2": torch.log2,
    "pow": torch.pow,
    "powi": torch.pow,
    "rint": torch.round,
    "rsqrt": torch.rsqrt,
    "sin": torch.sin,
    "sinh": torch.sinh,
    "sqrt": torch.sqrt,
    "tan": torch.tan,
    "tanh": torch.tanh,
    "trunc": torch.trunc,
    "div_rn": torch.div,
    "div_rz": torch.div,
}
"""libdevice's functions by the name without its prefix and the letters of its type."""
_PREFIX = "__nv_"
# How names tell types and rounding apart: powf and pow, isnand, finitef, fdiv_rn and ddiv_rn.
_SPECIAL = {
    "finitef": "isfinite",
    "isfinited": "isfinite",
    "isnand": "isnan",
    "isinfd": "isinf",
    "fdiv_rn": "div_rn",
    "ddiv_rn": "div_rn",
    "fdiv_rz": "div_rz",
    "ddiv_rz": "div_rz",
}


def compute(symbol: str, args: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """Computes libdevice's `symbol` on arrays. Raises NotImplementedError for an unknown symbol."""
    name = symbol.removeprefix(_PREFIX)
    name = _SPECIAL.get(name, name)
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("f"))
    if function is None:
        raise NotImplementedError(f"libdevice's {symbol} is not interpreted")
    made: np.ndarray[Any, Any] = function(
        *(torch.from_numpy(np.ascontiguousarray(arg)) for arg in args)
    ).numpy()
    return made


def module() -> types.ModuleType:
    """Triton's declarations for CUDA, such that interpreted kernels can call them."""
    from triton.language.extra.cuda import libdevice as declared
    from triton.runtime import interpreter

    def create(
        builder: Any, lib: str, path: str, symbol: str, args: Any, kind: Any, pure: bool
    ) -> Any:
        scalar = kind.scalar
        made = compute(symbol, [arg.data for arg in args])
        return interpreter.TensorHandle(made.astype(_numpy(scalar.name)), scalar)

    interpreter.InterpreterBuilder.create_extern_elementwise = create
    made = types.ModuleType("triton.language.extra.flagos_host.libdevice", declared.__doc__)
    for name, value in vars(declared).items():
        if getattr(value, "__triton_builtin__", False):
            setattr(made, name, partial(value, _semantic=interpreter.interpreter_semantic))
    return made


def _numpy(name: str) -> str:
    return {"fp32": "float32", "fp64": "float64", "int32": "int32", "int64": "int64"}[name]
