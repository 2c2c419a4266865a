"""Conditions on the arguments of a call, within which a kernel was verified.

A kernel that is wrong for empty tensors, say, is right to use for the others. The values in tensors are no
condition: reading them would cost a wait for the device. The shim evaluates conditions
(`csrc/python_kernels/conditions.cc`), of each routed call and, by `holding`, for `flagos verify`, which finds the
conditions that a kernel needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import torch

from torch_fl.calls import Args, Kwargs
from torch_fl.flaggems import sizes
from torch_fl.flaggems.arguments import argument_names

ORDINARY = "ordinary"
"""The condition under which verification runs: a kernel with a verdict serves no call that breaks it."""

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
"""The meaning of each condition, the simplest first."""

Holding = frozenset[str]
"""The conditions that hold for one call."""


def condition_sets(conditions: Iterable[str]) -> Iterator[frozenset[str]]:
    """All sets of conditions, smaller sets and simpler conditions first."""
    simplest_first = ordered(conditions)
    for size in range(1, len(simplest_first) + 1):
        yield from (frozenset(some) for some in combinations(simplest_first, size))


def ordered(conditions: Iterable[str]) -> list[str]:
    """The conditions as tables and messages list them."""
    conditions = set(conditions)
    known = [name for name in CONDITIONS if name in conditions]
    return known + sorted(set(conditions) - set(known))


def meaning(condition: str) -> str:
    """Describes a condition on a call."""
    if condition.startswith(sizes.PREFIX):
        return sizes.meaning(condition)
    unknown = f"{condition} holds, which this version does not know and takes for broken"
    return CONDITIONS.get(condition, unknown)


def holding(overload: str, args: Args, kwargs: Kwargs, more: Iterable[str] = ()) -> Holding:
    """The conditions that hold for a call of `aten::overload`, among them those of `more`, which name sizes."""
    op = f"aten::{overload}"
    places = {name: place for place, name in enumerate(argument_names(overload))}
    given = [*enumerate(args), *((places[name], value) for name, value in kwargs.items())]
    leaves = [
        (place, leaf)
        for place, value in given
        for leaf in (value if isinstance(value, (list, tuple)) else (value,))
    ]
    tensors = [(place, leaf) for place, leaf in leaves if isinstance(leaf, torch.Tensor)]
    held: list[str] = torch.ops.flagos.conditions_held(
        op,
        [tensor for _, tensor in tensors],
        [place for place, _ in tensors],
        [place for place, leaf in leaves if isinstance(leaf, complex)],
        next((leaf for _, leaf in leaves if isinstance(leaf, torch.dtype)), None),
        [name for name in more if name.startswith(sizes.PREFIX)],
    )
    return frozenset(held)
