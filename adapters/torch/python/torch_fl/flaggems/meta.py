"""Asks torch's meta kernels about a call that writes to its arguments, before anything is written.

FlagGems' functions are given such arguments as they are, and some take what torch refuses or would first make room
for: an `out` without elements is written beyond its end, integers are given what is none. The kernel of the operator
for meta tensors (https://docs.pytorch.org/docs/stable/meta.html) knows the errors, and the result's shape and type.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from torch_fl import python_kernels
from torch_fl.calls import Args, Kwargs
from torch_fl.flaggems.arguments import argument_names

_KEPT = 4096  # answers
_answers: dict[Any, str | None] = {}

READING = frozenset(["index_add", "index_put"])
"""Operators whose kernels, though they write to no argument, read beyond the end of what torch refuses."""


def refusal(overload: str, args: Args, kwargs: Kwargs) -> str | None:
    """Why a call of `aten::overload` is none for FlagGems' kernel; None where there is no such reason.

    Either torch refuses it, or an `out` has not the shape, strides and type of the result, or what is written in
    place cannot hold it, or it shares memory with what is read, but for the same elements of an operator that goes
    from one to the next. Answers are kept, by what they depend on: the first takes a millisecond or a few, the
    others 10 to 20 microseconds. Tensors that are not dense are not judged, and of operators without a meta kernel
    only the memory.
    """
    tensors = _tensors((args, kwargs))
    if any(tensor.layout != torch.strided for tensor in tensors):
        return None
    facts = _facts(args), _facts(tuple(kwargs.items()))
    key = overload, facts, _sharing(tensors), torch.get_default_dtype()
    try:
        return _answers[key]
    except KeyError:
        if len(_answers) >= _KEPT:
            _answers.clear()
        answer = _answers[key] = _answer(overload, args, kwargs)
        return answer


def _facts(value: Any) -> Any:
    """The key of an answer: it includes the types of equal numbers, and the intervals of fractions."""
    if isinstance(value, torch.Tensor):
        return value.shape, value.stride(), value.dtype
    if isinstance(value, (list, tuple)):
        return tuple(_facts(one) for one in value)
    if isinstance(value, float):
        return float, math.isfinite(value), value < 0, value == 0, value > 1
    return type(value), None if isinstance(value, torch.Generator) else value


def _tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a nest of arguments; of every call, so without torch's pytree, which takes longer."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    return [x for one in value for x in _tensors(one)] if isinstance(value, (list, tuple)) else []


def _sharing(tensors: list[torch.Tensor]) -> tuple[tuple[int, int, int], ...]:
    """Which of them lie in the same memory, and how many bytes apart they begin."""
    storages = [tensor.untyped_storage() for tensor in tensors]
    memory = [(s.data_ptr(), s.data_ptr() + s.nbytes()) for s in storages]
    return tuple(
        (first, second, tensors[second].data_ptr() - tensors[first].data_ptr())
        for second in range(len(tensors))
        for first in range(second)
        if memory[first][0] < memory[second][1] and memory[second][0] < memory[first][1]
    )


def _answer(overload: str, args: Args, kwargs: Kwargs) -> str | None:
    op = python_kernels.require_operator(f"aten::{overload}")
    outs = {argument.name for argument in op._schema.arguments if argument.is_out}
    writes = outs or {
        a.name for a in op._schema.arguments if a.alias_info and a.alias_info.is_write
    }
    given = dict(zip(argument_names(overload), args, strict=False)) | kwargs
    written = [value for name, value in given.items() if name in writes]
    read = _tensors([value for name, value in given.items() if name not in writes])
    for target in written:
        if any(stride == 0 for _, stride in _layout(target)) or any(
            _overlap(target, other, torch.Tag.pointwise in op.tags) for other in read
        ):
            return f"it writes to {_described(target)}, whose memory is that of another element"
    try:
        with _disable_current_modes():
            _insist(overload.partition(".")[0], given)
            on_meta = {name: _on_meta(value) for name, value in given.items() if name not in outs}
            made = (_pure(op) or op)(**on_meta)
    except NotImplementedError:
        return None
    except Exception as error:
        message = " ".join(str(error).split())[:200]
        # What it says of meta tensors it does not say of the others.
        about_meta = "meta tensor" in message.lower() or "Meta" in message
        return None if about_meta else f"torch refuses it: {type(error).__name__}: {message}"
    results = made if isinstance(made, (list, tuple)) else (made,)
    for target, result in zip(written, results, strict=False):
        alike = _layout(target) == _layout(result) and target.dtype == result.dtype
        fits = alike if outs else torch.can_cast(result.dtype, target.dtype)
        if target.shape != result.shape or not fits:
            return f"it writes to {_described(target)}, and the result is {_described(result)}"
    return None


def _insist(operator: str, given: Mapping[str, Any]) -> None:
    """Raises ValueError for what torch's kernels refuse and its meta kernels let pass.

    Such calls make FlagGems' kernels read beyond the end of a tensor, or cast without a word.
    """
    x: Any = given.get("self")
    if operator in ("index_add", "index_add_"):
        dim, index, source = given["dim"], given["index"], given["source"]
        taken = list(x.shape)
        if taken:
            taken[dim] = index.numel()
        if index.dim() > 1 or index.dtype not in (torch.int64, torch.int32):
            raise ValueError(f"the index is {_described(index)}, and not whole numbers in a row")
        if source.dtype != x.dtype or list(source.shape) != taken:
            raise ValueError(f"{_described(source)} is added to {taken} of {_described(x)}")
    elif operator in ("index_put", "index_put_", "_index_put_impl_"):
        indices, values = given["indices"], given["values"]
        if values.dtype != x.dtype:
            raise ValueError(f"{_described(values)} is put into {_described(x)}")
        place = 0
        for index in indices:
            masks = index is not None and index.dtype in (torch.bool, torch.uint8)
            if masks and index.shape != x.shape[place : place + index.dim()]:
                raise ValueError(
                    f"{_described(index)} is no mask of {_described(x)}, from dimension {place}"
                )
            place += index.dim() if masks else 1
        if place > x.dim():
            raise ValueError(f"{_described(x)} has not the {place} dimensions that are indexed")
    elif operator == "fill_" and isinstance(value := given["value"], torch.Tensor) and value.dim():
        raise ValueError(f"{_described(value)} is no number to fill with")


def _overlap(target: torch.Tensor, read: torch.Tensor, one_by_one: bool) -> bool:
    """Whether they have memory in common, other than each element its own `one_by_one`."""
    if target.numel() == 0 or read.numel() == 0:
        return False
    alike = target.data_ptr() == read.data_ptr() and _layout(target) == _layout(read)
    if one_by_one and alike and target.itemsize == read.itemsize:
        return False
    ends = [
        x.data_ptr() + x.itemsize * (1 + sum((n - 1) * s for n, s in _layout(x)))
        for x in (target, read)
    ]
    return target.data_ptr() < ends[1] and read.data_ptr() < ends[0]


def _layout(tensor: torch.Tensor) -> list[tuple[int, int]]:
    """The strides that tell where an element is."""
    if tensor.numel() == 0:
        return []
    return [one for one in zip(tensor.shape, tensor.stride(), strict=True) if one[0] > 1]


def _described(tensor: torch.Tensor) -> str:
    strides = "" if tensor.is_contiguous() else f", strides {list(tensor.stride())}"
    return f"{tensor.dtype} {list(tensor.shape)}{strides}".removeprefix("torch.")


def _on_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return [_on_meta(one) for one in value]
    if isinstance(value, torch.device):
        return torch.device("meta")
    return None if isinstance(value, torch.Generator) else value


@cache
def _pure(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """The overload that returns what another writes, with the same arguments but `out`; None without one.

    torch's meta kernels for those that write in place let pass what they cannot hold.
    """

    def arguments(of: torch._ops.OpOverload) -> list[tuple[Any, ...]]:
        given = [argument for argument in of._schema.arguments if not argument.is_out]
        return [(a.name, str(a.type), a.has_default_value()) for a in given]

    packet = getattr(torch.ops.aten, op._schema.name.removeprefix("aten::").removesuffix("_"), None)
    for name in packet.overloads() if packet is not None else ():
        other: torch._ops.OpOverload = getattr(packet, name)
        if not other._schema.is_mutable and arguments(other) == arguments(op):
            return other
    return None
