"""FlagGems' conditions on the arguments of a call, evaluated in Python: the oracle of the shim's evaluation."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl.flaggems import envelope

SELECTING = frozenset(["index", "indices", "mask", "condition"])  # as schemas call them
ALIGNMENT = 16  # bytes


def holding(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> envelope.Holding:
    """The conditions that hold for a call of `aten::overload`."""
    broken: set[str] = set()
    types: set[torch.dtype] = set()
    names = envelope.argument_names(overload)
    for name, value in [*zip(names, args, strict=False), *kwargs.items()]:
        for leaf in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(leaf, torch.Tensor):
                broken |= _broken_by(leaf, name)
                types |= {leaf.dtype} if name not in SELECTING else set()
            elif isinstance(leaf, complex) or (
                isinstance(leaf, torch.dtype) and leaf not in envelope.TYPES
            ):
                broken.add("ordinary")
    if len(types) > 1:
        broken.add("uniform")
    return frozenset(envelope.CONDITIONS) - broken


def _broken_by(tensor: torch.Tensor, name: str) -> set[str]:
    dtype = tensor.dtype
    return {
        condition
        for condition, breaks in (
            ("ordinary", dtype not in envelope.TYPES),
            ("nonempty", tensor.numel() == 0),
            ("dimensioned", tensor.dim() == 0),
            ("floating", not dtype.is_floating_point and name not in SELECTING),
            ("aligned", not _aligned(tensor)),
            ("contiguous", not tensor.is_contiguous()),
        )
        if breaks
    }


def _aligned(tensor: torch.Tensor) -> bool:
    """Whether tensor maps can describe it: neighbours along one dimension, the others 16 bytes apart or more."""
    if tensor.dim() < 2:
        return True
    if tensor.layout != torch.strided or tensor.data_ptr() % ALIGNMENT != 0:
        return False
    others = [stride for stride in tensor.stride() if stride != 1]
    apart = all(stride != 0 and stride * tensor.itemsize % ALIGNMENT == 0 for stride in others)
    rows = sum(s == 1 and size > 1 for s, size in zip(tensor.stride(), tensor.shape, strict=True))
    return apart and len(others) < tensor.dim() and rows <= 1
