"""`torch.flagos.FloatTensor` and the other names that `x.type()` returns, made at their first use."""

from __future__ import annotations

from typing import Any

import torch

_DTYPES = {
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16,
    "LongTensor": torch.int64,
    "IntTensor": torch.int32,
    "ShortTensor": torch.int16,
    "CharTensor": torch.int8,
    "ByteTensor": torch.uint8,
    "BoolTensor": torch.bool,
}
NAMES = frozenset(_DTYPES)


class _TensorType(type):
    """A type of tensors by device and dtype, as `torch.cuda.FloatTensor` is one. It has no instances of its own."""

    dtype: torch.dtype
    layout = torch.strided
    is_cuda = False
    is_sparse = False

    def __instancecheck__(cls, value: object) -> bool:
        return (
            isinstance(value, torch.Tensor)
            and value.device.type == "flagos"
            and value.dtype == cls.dtype
            and value.layout == cls.layout
        )

    def __call__(cls, *arguments: Any, device: Any = "flagos") -> torch.Tensor:
        """A tensor of these sizes, uninitialised, or of these values."""
        if torch.device(device).type != "flagos":
            raise TypeError(f"{cls.__name__} is of flagos devices, not of {device}")
        if arguments and all(isinstance(size, int) for size in arguments):
            return torch.empty(arguments, dtype=cls.dtype, device=device)
        if len(arguments) == 1 and isinstance(arguments[0], torch.Size):
            return torch.empty(arguments[0], dtype=cls.dtype, device=device)
        if len(arguments) > 1:
            raise TypeError(
                f"{cls.__name__} takes sizes or one sequence, got {len(arguments)} values"
            )
        values = arguments[0] if arguments else []
        return torch.tensor(values, dtype=cls.dtype, device=device)


def make(name: str) -> type:
    """The type of this name in `torch.flagos`. Raises KeyError for another name."""
    # `Tensor.type` reads the whole name.
    return _TensorType(
        f"torch.flagos.{name}", (), {"dtype": _DTYPES[name], "__module__": "torch.flagos"}
    )
