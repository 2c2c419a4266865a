"""Calls of other sizes than the recorded ones: each of a program's sizes divided by 4, 16, 64 and so on.

Sizes that are equal in a call stay equal, so that the call stays one that the operator takes, as a rule.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import zip_longest
from typing import Any

from torch_fl_tools.flaggems.recorded import classes
from torch_fl_tools.records.facts import Call, TensorFacts, contiguous

_SMALL = 8  # sizes up to this stay: heads, channels of images, batches
_FACTOR = 4


def smaller(call: Call) -> Iterator[Call]:
    """The call with its sizes divided by ever more, the largest first; none where memory is shared in parts."""
    tensors = call.tensors()
    if any(one.memory is not None and one.memory[1] for one in tensors):
        return
    before, divisor = call, _FACTOR
    while (made := _divided(call, divisor)) != before:
        yield made
        before, divisor = made, divisor * _FACTOR


def _divided(call: Call, divisor: int) -> Call:
    dimensions = {size for one in call.tensors() for size in one.shape}

    def size(n: int) -> int:
        return n if n <= _SMALL else max(_SMALL, n // divisor)

    def value(given: Any) -> Any:
        if isinstance(given, TensorFacts):
            shape = tuple(size(n) for n in given.shape)
            return replace(given, shape=shape, strides=_strides(given, shape))
        if isinstance(given, tuple):
            return tuple(value(one) for one in given)
        if type(given) is int and given in dimensions:
            return size(given)
        return given

    named = {name: value(given) for name, given in call.kwargs.items()}
    return replace(call, args=value(call.args), kwargs=named)


def _strides(before: TensorFacts, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides of the same order without gaps; those that were 0 stay 0."""
    if before.strides == contiguous(before.shape):
        return contiguous(shape)
    order = sorted(range(len(shape)), key=lambda d: (before.strides[d], -d))
    strides, step = [0] * len(shape), 1
    for d in order:
        if before.strides[d]:
            strides[d] = step
            step *= shape[d]
    return tuple(strides)


def form(call: Call) -> Any:
    """The key that calls have in common if they differ only in sizes."""

    def of(given: Any) -> Any:
        if isinstance(given, TensorFacts):
            order = sorted(range(len(given.shape)), key=lambda d: (given.strides[d], -d))
            broadcast = tuple(n == 1 for n in given.shape), tuple(s == 0 for s in given.strides)
            return given.dtype, tuple(order), broadcast, given.offset, given.on_host
        if isinstance(given, tuple):
            return tuple(of(one) for one in given)
        if type(given) is int:
            return int, given if abs(given) <= _SMALL else None
        return type(given), given if isinstance(given, (bool, str)) else None

    named = tuple(sorted((name, of(value)) for name, value in call.kwargs.items()))
    return call.op, of(call.args), named


def selected(calls: Iterable[Call]) -> list[list[Call]]:
    """The calls by form, the largest of each first, one of each class of sizes."""
    found: dict[Any, dict[Any, Call]] = {}
    for call in sorted(calls, key=weight, reverse=True):
        key = tuple(sorted(classes.of(call).items()))
        found.setdefault(form(call), {}).setdefault(key, call)
    return [list(same.values()) for same in found.values()]


def work(call: Call) -> int:
    """The elements of what the tensors of a call become together, where they are broadcast or multiplied."""
    shapes = [tuple(reversed(one.shape)) for one in call.tensors()]
    return math.prod(max(dims) for dims in zip_longest(*shapes, fillvalue=1))


def weight(call: Call) -> int:
    """The elements of all tensors of a call."""
    return sum(one.numel for one in call.tensors())
