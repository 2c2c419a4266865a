"""Conditions on the arguments of a call, within which a kernel was verified.

A kernel that is wrong for empty tensors, say, is right to use for the others. What is in the tensors is no
condition: looking would cost a wait for the device. Calls that are routed are held against them without Python
(`csrc/python_kernels/conditions.cc`); `flagos verify` finds with `holding` which conditions a kernel needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from itertools import combinations
from typing import Any

import torch

from torch_fl import python_kernels

ORDINARY = "ordinary"
"""What verification is run with: a kernel with a verdict serves no call outside this condition."""

ALIGNED = "aligned"

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)

CONDITIONS = {
    ORDINARY: "tensors, dtypes and numbers are of verified types (float32, bfloat16, float16, int64, bool)",
    "nonempty": "no tensor is without elements",
    "dimensioned": "no tensor is without dimensions",
    "floating": "every tensor holds floating-point numbers, but for indices and masks",
    "uniform": "all tensors are of one type, but for indices and masks",
    ALIGNED: "every tensor of two dimensions or more begins at a multiple of 16 bytes, and so do its rows or columns",
    "contiguous": "every tensor is contiguous",
}
"""What each means, the simplest first."""

_SELECTING = frozenset(["index", "indices", "mask", "condition"])  # as schemas call them

_ALIGNMENT = 16  # bytes

Holding = frozenset[str]
"""The conditions that hold for one call."""


def candidates(conditions: Iterable[str]) -> Iterator[frozenset[str]]:
    """Sets of conditions: fewer before more, simpler before less simple."""
    simplest_first = ordered(conditions)
    for size in range(1, len(simplest_first) + 1):
        yield from (frozenset(some) for some in combinations(simplest_first, size))


def ordered(conditions: Iterable[str]) -> list[str]:
    """The conditions as tables and messages list them."""
    known = [name for name in CONDITIONS if name in conditions]
    return known + sorted(set(conditions) - set(known))


def meaning(condition: str) -> str:
    """What a condition says of a call."""
    unknown = f"{condition} holds, which this version does not know and takes for broken"
    return CONDITIONS.get(condition, unknown)


def holding(overload: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Holding:
    """The conditions that hold for a call of `aten::overload`."""
    broken: set[str] = set()
    types: set[torch.dtype] = set()
    for name, value in [*zip(argument_names(overload), args, strict=False), *kwargs.items()]:
        for leaf in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(leaf, torch.Tensor):
                broken |= _broken_by(leaf, name)
                types |= {leaf.dtype} if name not in _SELECTING else set()
            elif isinstance(leaf, complex) or (isinstance(leaf, torch.dtype) and leaf not in TYPES):
                broken.add(ORDINARY)
    if len(types) > 1:
        broken.add("uniform")
    return frozenset(CONDITIONS) - broken


def _broken_by(tensor: torch.Tensor, name: str) -> set[str]:
    dtype = tensor.dtype
    return {
        condition
        for condition, breaks in (
            (ORDINARY, dtype not in TYPES),
            ("nonempty", tensor.numel() == 0),
            ("dimensioned", tensor.dim() == 0),
            ("floating", not dtype.is_floating_point and name not in _SELECTING),
            (ALIGNED, not _aligned(tensor)),
            ("contiguous", not tensor.is_contiguous()),
        )
        if breaks
    }


def _aligned(tensor: torch.Tensor) -> bool:
    """Whether tensor maps can describe it: neighbours along one dimension, the others 16 bytes apart or more."""
    if tensor.dim() < 2:
        return True
    if tensor.layout != torch.strided or tensor.data_ptr() % _ALIGNMENT != 0:
        return False
    others = [stride for stride in tensor.stride() if stride != 1]
    apart = all(stride != 0 and stride * tensor.itemsize % _ALIGNMENT == 0 for stride in others)
    rows = sum(s == 1 and size > 1 for s, size in zip(tensor.stride(), tensor.shape, strict=True))
    return apart and len(others) < tensor.dim() and rows <= 1


@cache
def argument_names(overload: str) -> tuple[str, ...]:
    """What the schema of `aten::overload` calls its arguments, in order."""
    schema = python_kernels.require_operator(f"aten::{overload}")._schema
    return tuple(argument.name for argument in schema.arguments)
