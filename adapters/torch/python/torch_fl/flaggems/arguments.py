"""The arguments of overloads, by their schemas."""

from __future__ import annotations

from functools import cache

from torch_fl import python_kernels


@cache
def argument_names(overload: str) -> tuple[str, ...]:
    """The names of the arguments of `aten::overload` in its schema, in order."""
    schema = python_kernels.require_operator(f"aten::{overload}")._schema
    return tuple(argument.name for argument in schema.arguments)


@cache
def tensor_places(overload: str) -> tuple[int, ...]:
    """The places of the arguments of `aten::overload` that are tensors or lists of tensors."""
    schema = python_kernels.require_operator(f"aten::{overload}")._schema
    return tuple(place for place, a in enumerate(schema.arguments) if "Tensor" in str(a.type))
