"""Arguments for a recorded call, of the recorded layout and of numbers of our own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from torch_fl import python_kernels
from torch_fl.calls import Args, Kwargs
from torch_fl_tools.flaggems.recorded.zones import Zones
from torch_fl_tools.records.facts import DEVICE, Call, TensorFacts

_POSITIVE = (
    "sqrt",
    "log",
    "pow",
    "gamma",
    "reciprocal",
    "div",
    "fmod",
    "remainder",
    "floor_divide",
)
_WITHOUT_RANGE = 8  # integers of which no range is known are below

# Operators that select along `dim` of `self`, and those that put elements to selected places.
_ALONG_DIM = (
    *("gather", "scatter", "scatter_add", "scatter_reduce"),
    *("index_select", "index_add", "index_fill", "index_copy"),
)
_PUTS = ("scatter", "index_put", "_index_put_impl", "index_copy", "_unsafe_index_put")


class Inputs:
    """Makes the arguments of one call, with the same numbers each time, on one device."""

    def __init__(self, call: Call, device: torch.device, seed: int = 0) -> None:
        self._call = call
        self._device = device
        self._schema = python_kernels.require_operator(call.op)._schema
        self._pointwise = torch.Tag.pointwise in python_kernels.require_operator(call.op).tags
        self._operator = self._schema.name.partition("::")[2].removesuffix("_")
        names = [argument.name for argument in self._schema.arguments]
        self.named = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
        self.written = {
            a.name for a in self._schema.arguments if a.alias_info and a.alias_info.is_write
        }
        generator = torch.Generator(device).manual_seed(seed)
        self._values: list[torch.Tensor] = []
        self._each(
            lambda facts, name, place: self._values.append(
                self._numbers(facts, name, place, generator)
            )
        )

    def make(self, zones: Zones) -> tuple[Args, Kwargs]:
        """The arguments, in memory with red zones; only those that the operator writes to may change."""
        shared: dict[int, torch.Tensor] = {}
        sizes: dict[int, int] = {}
        read_only: list[torch.Tensor] = []
        for facts in self._call.tensors():
            if facts.memory is not None:
                number, place = facts.memory
                sizes[number] = max(sizes.get(number, 0), place + facts.extent)
        writes_to = {
            facts.memory[0]
            for name in self.written
            for facts in _tensors(self.named.get(name))
            if facts.memory is not None
        }
        left = iter(self._values)

        def made(facts: TensorFacts, name: str, place: int) -> torch.Tensor:
            values = next(left)
            if facts.on_host:
                return values.view(facts.shape)
            description = f"`{name}`, {facts}"
            if facts.memory is None:
                base = zones.memory(facts.offset + facts.extent, description)
                at, is_read_only = facts.offset, name not in self.written
            else:
                number, at = facts.memory
                is_read_only = number not in writes_to
                if number not in shared:
                    shared[number] = zones.memory(sizes[number], description)
                base = shared[number]
            tensor = zones.view(base, at, facts.dtype, facts.shape, facts.strides)
            _fill(tensor, values)
            if is_read_only and not any(base is known for known in read_only):
                read_only.append(base)
            return tensor

        args, kwargs = self._each(made)
        for base in read_only:
            zones.keep(base)
        return args, kwargs

    def _each(self, make: Callable[[TensorFacts, str, int], Any]) -> tuple[Args, Kwargs]:
        """The arguments, with what `make` returns for each tensor, its argument and its place in a list."""

        def value(given: Any, name: str, place: int = 0) -> Any:
            if isinstance(given, TensorFacts):
                return make(given, name, place)
            if isinstance(given, tuple):
                return [value(one, name, index) for index, one in enumerate(given)]
            return self._device if given == DEVICE and isinstance(given, torch.device) else given

        names = [argument.name for argument in self._schema.arguments]
        args = tuple(
            value(given, name) for name, given in zip(names, self._call.args, strict=False)
        )
        return args, {name: value(given, name) for name, given in self._call.kwargs.items()}

    def _numbers(
        self, facts: TensorFacts, name: str, place: int, generator: torch.Generator
    ) -> torch.Tensor:
        """The numbers of a tensor, one for each element that has a place of its own, in a row."""
        shape = [1 if s == 0 else n for n, s in zip(facts.shape, facts.strides, strict=True)]
        if facts.on_host:
            shape = list(facts.shape)
        options: Any = {"device": self._device, "generator": generator}
        if facts.dtype == torch.bool:
            made = torch.rand(shape, **options) < 0.5
        elif not (facts.dtype.is_floating_point or facts.dtype.is_complex):
            made = self._integers(facts, shape, name, place, options)
        else:
            made = torch.rand(shape, dtype=torch.float32, **options)
            if (
                self._operator in ("_softmax_backward_data", "_log_softmax_backward_data")
                and name == "output"
            ):
                # Numbers between 0 and 1 whose sum is about 1, or their logarithms.
                made = (made + 0.5) / max(1, facts.shape[self.named["dim"]] if facts.shape else 1)
                made = made.log() if self._operator.startswith("_log") else made
            elif self._pointwise and not any(part in self._operator for part in _POSITIVE):
                made = made * 4 - 2
            else:
                made = made + 0.25  # sums of positive numbers lose no digits
        typed: torch.Tensor = made.to(facts.dtype)
        return typed.cpu() if facts.on_host else typed

    def _integers(
        self, facts: TensorFacts, shape: list[int], name: str, place: int, options: Any
    ) -> torch.Tensor:
        bound = self._bound(name, place)
        low, high = facts.range or (0, (bound or _WITHOUT_RANGE) - 1)
        if bound is not None:
            low, high = max(low, -bound) if low != -100 else 0, min(high, bound - 1)
        high = max(low, high)
        if bound is not None and self._operator in _PUTS and shape:
            # Of two elements for one place either may be the last.
            dim = self.named.get("dim", 0) if self._operator != "index_put" else 0
            steps = torch.arange(shape[dim], device=self._device) % max(1, bound)
            return steps.view(
                [-1 if d == dim % len(shape) else 1 for d in range(len(shape))]
            ).expand(shape)
        if self._operator == "_grouped_mm" and name == "offs":
            step = max(1, int(self.named["self"].shape[0]) // max(1, shape[0]))
            return torch.arange(1, shape[0] + 1, device=self._device) * step
        return torch.randint(low, high + 1, shape, **options)

    def _bound(self, name: str, place: int) -> int | None:
        """The number below which an index must be; None for what is none."""
        given = self.named
        if self._operator == "embedding" and name == "indices":
            return int(given["weight"].shape[0])
        if self._operator == "embedding_dense_backward" and name == "indices":
            return int(given["num_weights"])
        if self._operator in _ALONG_DIM and name == "index":
            shape = given["self"].shape
            return int(shape[given["dim"]]) if shape else 1
        if self._operator.startswith("nll_loss") and name == "target":
            shape = given["self"].shape
            return int(shape[1] if len(shape) > 1 else shape[0])
        if (
            self._operator
            in ("index", "index_put", "_index_put_impl", "_unsafe_index", "_unsafe_index_put")
            and name == "indices"
        ):
            before = [one for one in given["indices"][:place] if isinstance(one, TensorFacts)]
            nothing = place - len(before)
            dim = nothing + sum(len(one.shape) if one.dtype == torch.bool else 1 for one in before)
            return int(given["self"].shape[dim])
        return int(given["self"].numel) if self._operator == "take" and name == "index" else None


def _fill(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Give every element its number. Elements that share a place share one."""
    own = tensor.as_strided(
        [1 if s == 0 else n for n, s in zip(tensor.shape, tensor.stride(), strict=True)],
        tensor.stride(),
        tensor.storage_offset(),
    )
    if torch._debug_has_internal_overlap(own) != 1 or own.numel() < 2:
        own.copy_(values.view(own.shape))
        return
    # Overlapping windows, one after the other.
    for index in range(own.shape[0]):
        _fill(own[index], values.view(own.shape)[index])


def _tensors(value: Any) -> list[TensorFacts]:
    if isinstance(value, TensorFacts):
        return [value]
    return [one for each in value for one in _tensors(each)] if isinstance(value, tuple) else []
