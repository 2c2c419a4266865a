"""The facts of one operator call: what a kernel may decide by, and nothing of what tensors hold.

A call is one line of JSON. Tensors are written as `{"t": "float32[8,256,768]"}`, with what else there is to know:
`s` the strides where they are not those of a contiguous tensor, `o` the bytes by which the first element lies beside a
multiple of 16, `m` the number of the memory that it shares with other arguments of the call and its place there in
bytes, `r` the least and the greatest of its integers, `h` a tensor on the host beside others that are not.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NoReturn, TypedDict

import torch

from torch_fl.calls import Args, Kwargs

ALIGNMENT = 16  # bytes: what kernels are specialised for
_DEEPEST = 8  # lists within lists; torch's operators take lists of tensors and no deeper ones
_INT64 = range(-(2**63), 2**63)
_RANGED = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
_ENUMERATED = {
    "dtype": torch.dtype,
    "memory_format": torch.memory_format,
    "layout": torch.layout,
}


DEVICE = torch.device("meta")
"""Stands for the device that a call names, which may be another one when the call runs again."""


class BrokenRecord(ValueError):
    """A record, or a line of it, that cannot be read."""


@dataclass(frozen=True)
class TensorFacts:
    """The facts about a tensor. Sizes and strides are in elements, offsets in bytes."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int = 0  # of the first element, beside a multiple of ALIGNMENT
    memory: tuple[int, int] | None = (
        None  # shared memory: its number, and the place of the first element
    )
    range: tuple[int, int] | None = None  # of integers
    on_host: bool = False

    @property
    def numel(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def extent(self) -> int:
        """The bytes from the first element to the end of the last."""
        if self.numel == 0:
            return 0
        last = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        return (last + 1) * self.dtype.itemsize

    def __str__(self) -> str:
        shown = f"{_name(self.dtype)}[{','.join(map(str, self.shape))}]"
        return (
            shown
            if self.strides == contiguous(self.shape)
            else f"{shown} strides {list(self.strides)}"
        )


@dataclass(frozen=True)
class Call:
    """One call: the overload (`aten::add.Tensor`), and its arguments, with TensorFacts in place of tensors."""

    op: str
    args: Args
    kwargs: Kwargs
    count: int = 1
    autocast: str | None = None  # the type of the autocast around it
    grad: bool = False  # whether a gradient is wanted of an argument

    @property
    def overload(self) -> str:
        """The name without the namespace."""
        return self.op.partition("::")[2]

    def tensors(self) -> list[TensorFacts]:
        """Every tensor among the arguments, in order."""
        return list(_leaves((self.args, self.kwargs)))

    def __str__(self) -> str:
        given = [_shown(value) for value in self.args]
        given += [f"{name}={_shown(value)}" for name, value in self.kwargs.items()]
        return f"{self.overload}({', '.join(given)})"


def contiguous(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a contiguous tensor."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _leaves(value: Any) -> Iterator[TensorFacts]:
    if isinstance(value, TensorFacts):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _leaves(one)
    elif isinstance(value, dict):
        yield from _leaves(tuple(value.values()))


def _shown(value: Any) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_shown, value))}]"
    if isinstance(value, torch.device):
        return "<device>"  # whichever it was
    return str(value)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---- from the arguments of a call


class Unrecordable(TypeError):
    """An argument that facts do not describe: a sparse or nested tensor, an object."""


def describe(op: str, args: Args, kwargs: Kwargs) -> Call:
    """The facts of a call. Reads no element. Raises Unrecordable."""
    seen: list[torch.Tensor] = []

    def tensors_of(value: Any) -> None:
        if isinstance(value, torch.Tensor):
            seen.append(value)
        elif isinstance(value, (list, tuple)):
            for one in value:
                tensors_of(one)

    for value in (*args, *kwargs.values()):
        tensors_of(value)
    for tensor in seen:
        if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized:
            raise Unrecordable(f"a tensor of layout {tensor.layout}, dtype {tensor.dtype}")
    memory = _shared(seen)
    beside_host = any(tensor.device.type != "cpu" for tensor in seen)
    wants = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in seen)

    def facts(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return TensorFacts(
                value.dtype,
                tuple(map(int, value.shape)),
                tuple(map(int, value.stride())),
                _misaligned(value),
                memory.get(id(value)),
                on_host=beside_host and value.device.type == "cpu",
            )
        if isinstance(value, (list, tuple)):
            return tuple(facts(one) for one in value)
        if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
            raise Unrecordable("a size that is not known yet")
        if isinstance(value, torch.Generator):
            return None
        if isinstance(value, torch.device):
            return DEVICE
        if value is None or isinstance(
            value, (bool, int, float, complex, str, *_ENUMERATED.values())
        ):
            return value
        raise Unrecordable(f"an argument of type {type(value).__name__}")

    return Call(op, facts(args), {name: facts(value) for name, value in kwargs.items()}, grad=wants)


def _misaligned(tensor: torch.Tensor) -> int:
    """A storage begins at a multiple of ALIGNMENT, of those that torch allocates."""
    return int(tensor.storage_offset()) * tensor.itemsize % ALIGNMENT


def _shared(tensors: list[torch.Tensor]) -> dict[int, tuple[int, int]]:
    """By the ids of tensors that have a storage in common: its number in the call, and the place in bytes."""
    storages: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors:
        storages.setdefault(tensor.untyped_storage()._cdata, []).append(tensor)
    found: dict[int, tuple[int, int]] = {}
    for group in storages.values():
        if len(group) < 2:
            continue
        number = len({memory for memory, _ in found.values()})
        begin = min(int(t.storage_offset()) * t.itemsize for t in group) // ALIGNMENT * ALIGNMENT
        for tensor in group:
            found[id(tensor)] = (number, int(tensor.storage_offset()) * tensor.itemsize - begin)
    return found


def with_ranges(call: Call, args: Args, kwargs: Kwargs) -> Call:
    """The same facts, with the range of every tensor of integers, which is read: waits for the device."""

    def ranged(facts: Any, value: Any) -> Any:
        if isinstance(facts, tuple):
            return tuple(ranged(f, v) for f, v in zip(facts, value, strict=True))
        if not isinstance(facts, TensorFacts) or facts.dtype not in _RANGED or facts.numel == 0:
            return facts
        low, high = torch.aminmax(value.detach())
        return replace(facts, range=(int(low), int(high)))

    return replace(
        call,
        args=ranged(call.args, args),
        kwargs={name: ranged(call.kwargs[name], value) for name, value in kwargs.items()},
    )


def key(call: Call) -> Any:
    """The key of distinct calls: it has only the kinds of numbers, and no ranges.

    A program calls an operator with the same tensors and another number each step (Adam's step size).
    """

    def plain(value: Any) -> Any:
        if isinstance(value, TensorFacts):
            return replace(value, range=None)
        if isinstance(value, tuple):
            return tuple(plain(one) for one in value)
        if isinstance(value, float):
            return float, math.isfinite(value), value > 0, value == 0, value == 1
        return type(value), value

    named = tuple(sorted((name, plain(value)) for name, value in call.kwargs.items()))
    return call.op, plain(call.args), named, call.autocast, call.grad


# ---- to JSON and back


class _Call(TypedDict):
    op: str
    args: list[Any]


class Line(_Call, total=False):
    """A line of a record."""

    kwargs: dict[str, Any]
    autocast: str
    grad: bool
    count: int


class _TensorText(TypedDict):
    t: str


class _Tensor(_TensorText, total=False):
    s: list[int]
    o: int
    m: list[int]
    r: list[int]
    h: bool


def to_json(call: Call) -> Line:
    """A call as a line of a record has it."""
    line: Line = {"op": call.op, "args": [_to_json(value) for value in call.args]}
    if call.kwargs:
        line["kwargs"] = {name: _to_json(value) for name, value in call.kwargs.items()}
    if call.autocast is not None:
        line["autocast"] = call.autocast
    if call.grad:
        line["grad"] = True
    line["count"] = call.count
    return line


def _to_json(value: Any) -> Any:
    if isinstance(value, TensorFacts):
        made: _Tensor = {"t": f"{_name(value.dtype)}[{','.join(map(str, value.shape))}]"}
        if value.strides != contiguous(value.shape):
            made["s"] = list(value.strides)
        if value.offset:
            made["o"] = value.offset
        if value.memory is not None:
            made["m"] = list(value.memory)
        if value.range is not None:
            made["r"] = list(value.range)
        if value.on_host:
            made["h"] = True
        return made
    if isinstance(value, tuple):
        return [_to_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": str(value)}
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, torch.device):
        return {"device": True}
    for name, kind in _ENUMERATED.items():
        if isinstance(value, kind):
            return {name: str(value).removeprefix("torch.")}
    return value


def from_json(line: Any) -> Call:
    """The call that a line tells. Raises BrokenRecord."""
    if not isinstance(line, dict):
        _broken("a call is an object", line)
    op, args, kwargs = line.get("op"), line.get("args", []), line.get("kwargs", {})
    if not isinstance(op, str) or "::" not in op:
        _broken("`op` is the name of an overload, such as aten::add.Tensor", op)
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        _broken("`args` is a list and `kwargs` an object", args)
    count = line.get("count", 1)
    if type(count) is not int or count < 1:
        _broken("`count` is a positive number", count)
    autocast = line.get("autocast")
    if autocast is not None and not _is_dtype(autocast):
        _broken("`autocast` is a dtype of torch, such as bfloat16", autocast)
    return Call(
        op,
        tuple(_from_json(value) for value in args),
        {str(name): _from_json(value) for name, value in kwargs.items()},
        count,
        autocast,
        bool(line.get("grad", False)),
    )


def _is_dtype(name: Any) -> bool:
    return isinstance(name, str) and isinstance(getattr(torch, name, None), torch.dtype)


def _from_json(value: Any, depth: int = 0) -> Any:
    if isinstance(value, list):
        if depth == _DEEPEST:
            _broken(f"at most {_DEEPEST} lists lie in each other", value)
        return tuple(_from_json(one, depth + 1) for one in value)
    if not isinstance(value, dict):
        if type(value) is int and value not in _INT64:
            _broken("a whole number has 64 bits", value)
        return value
    if "t" in value:
        return _tensor_from_json(value)
    try:
        ((kind, given),) = value.items()
        if kind == "float":
            return float(given)
        if kind == "complex":
            return complex(*given)
        if kind == "device":
            return DEVICE
        if kind in _ENUMERATED and isinstance(found := getattr(torch, given), _ENUMERATED[kind]):
            return found
    except (ValueError, TypeError, AttributeError, OverflowError):
        pass
    _broken("a value is a tensor, a number, a text, a list or one of float, complex, device, "
            f"{', '.join(_ENUMERATED)}", value)  # fmt: skip


def _tensor_from_json(value: Mapping[str, Any]) -> TensorFacts:
    text = value["t"]
    try:
        kind, _, sizes = text.removesuffix("]").partition("[")
        dtype = getattr(torch, kind)
        shape = tuple(int(size) for size in sizes.split(",") if size)
        strides = tuple(map(int, value["s"])) if "s" in value else contiguous(shape)
        memory = (int(value["m"][0]), int(value["m"][1])) if "m" in value else None
        range_ = (int(value["r"][0]), int(value["r"][1])) if "r" in value else None
        offset = int(value.get("o", 0))
    except (AttributeError, ValueError, TypeError, IndexError, KeyError, OverflowError):
        _broken("a tensor is like float32[8,256,768]", value)
    sizes_are = all(size >= 0 for size in shape) and all(stride >= 0 for stride in strides)
    if not isinstance(dtype, torch.dtype) or len(strides) != len(shape) or not sizes_are:
        _broken("a tensor has a dtype of torch, and a stride for each size", value)
    if offset % dtype.itemsize or not 0 <= offset < ALIGNMENT:
        _broken(f"`o` is a number of whole elements below {ALIGNMENT} bytes", value)
    found = TensorFacts(dtype, shape, strides, offset, memory, range_, bool(value.get("h", False)))
    numbers = (*shape, *strides, *(memory or ()), *(range_ or ()), found.extent)
    if (
        any(number not in _INT64 for number in numbers)
        or math.prod(filter(None, shape)) not in _INT64
    ):
        _broken("the numbers of a tensor and its bytes have 64 bits", value)
    return found


def _broken(expected: str, given: Any) -> NoReturn:
    raise BrokenRecord(f"expected that {expected}; got {str(given)[:120]}")
