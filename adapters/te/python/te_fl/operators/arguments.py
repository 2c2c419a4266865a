"""Arguments of TransformerEngine's operators: dtypes, enumerators, renamed keywords, flags on the device."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cache, lru_cache, wraps
from typing import Any, SupportsInt, TypeVar

import torch

from flagos._core import UnsupportedError

F = TypeVar("F", bound=Callable[..., Any])

# `transformer_engine::DType`, by value and by name.
_DTYPES = {
    0: ("kByte", torch.uint8),
    1: ("kInt16", torch.int16),
    2: ("kInt32", torch.int32),
    3: ("kInt64", torch.int64),
    4: ("kFloat32", torch.float32),
    5: ("kFloat16", torch.float16),
    6: ("kBFloat16", torch.bfloat16),
    7: ("kFloat8E4M3", torch.float8_e4m3fn),
    8: ("kFloat8E5M2", torch.float8_e5m2),
}
_BY_NAME = dict(_DTYPES.values())


def torch_dtype(dtype: Any) -> torch.dtype | None:
    """The torch dtype of a torch dtype, an enumerator (native or of :mod:`te_fl.core.enums`) or its number."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    # Cached, because every call converts a dtype and `name` of pybind's enumerator takes a microsecond.
    return _enumerated(dtype) if isinstance(dtype, Hashable) else _look_up(dtype)


def _look_up(dtype: Any) -> torch.dtype:
    # Enumerators of some versions of the native module are not ints; their names are the same in all.
    name = getattr(dtype, "name", None)
    if name in _BY_NAME:
        return _BY_NAME[name]
    number = int(getattr(dtype, "value", dtype))
    if number not in _DTYPES:
        raise UnsupportedError(f"dtype {dtype!r} is not supported by te_fl")
    return _DTYPES[number][1]


# Typed, because equal enumerators of different enumerations may mean different dtypes.
_enumerated = lru_cache(maxsize=64, typed=True)(_look_up)


def enumerator(value: Any, names: dict[int, str], prefix: str = "NVTE_") -> str:
    """The name of an enumerator without ``prefix``. ``names`` maps plain numbers to names."""
    name = getattr(value, "name", None)
    if name is None:
        name = names.get(int(value)) if isinstance(value, SupportsInt) else None
    if name is None:
        raise UnsupportedError(f"{value!r} is none of {', '.join(names.values())}")
    return name.removeprefix(prefix)


def compute_dtype(*tensors: torch.Tensor | None) -> torch.dtype:
    """The dtype to compute in, as in TransformerEngine: float64 if any tensor has it, else float32."""
    return (
        torch.float64
        if any(t is not None and t.dtype == torch.float64 for t in tensors)
        else torch.float32
    )


def has_kernel(op: str, x: torch.Tensor) -> bool:
    """Whether the device of ``x``, or flagos for that device, has a kernel of ``op`` (``aten::...``)."""
    return _registered(op, x.device.type)


@cache
def _registered(op: str, device_type: str) -> bool:
    key = torch._C._dispatch_key_for_device(device_type)
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(op, key))


def renamed(**old: str) -> Callable[[F], F]:
    """A decorator that accepts keywords of another version of TransformerEngine: ``renamed(eps="epsilon")``."""

    def decorate(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if kwargs:
                kwargs = {old.get(name, name): value for name, value in kwargs.items()}
            return function(*args, **kwargs)

        return call  # type: ignore[return-value]

    return decorate


def itself_without_arguments(function: F) -> F:
    """A decorator: TransformerEngine-FL 2.9 asks for the function that serves Adam by a call without arguments."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if args or kwargs else function

    return call  # type: ignore[return-value]


def unless(flag: torch.Tensor | None, new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """``old`` when ``flag``, a tensor on the device, is set, else ``new``. The host does not wait."""
    return new if flag is None else torch.where(flag != 0, old, new)


def assign(target: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Writes ``value`` into ``target``, which may be a leaf that requires a gradient."""
    with torch.no_grad():
        return target.copy_(value)
