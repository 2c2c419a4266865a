"""Whether a program that Inductor is to compile uses the device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

_DEVICE = "flagos"


def uses_flagos(model: Any, inputs: Sequence[Any]) -> bool:
    """Whether an argument, a parameter, a constant or a node of the program is on flagos, or names it."""
    return any(is_on_flagos(value) for value in (*inputs, *_values_of(model)))


def is_on_flagos(value: Any) -> bool:
    """Whether the tensor is on flagos, or the device, or its name, is flagos."""
    if isinstance(value, str):
        return value.partition(":")[0] == _DEVICE
    if isinstance(value, torch.device):
        return value.type == _DEVICE
    return isinstance(value, torch.Tensor) and value.device.type == _DEVICE


def _values_of(model: Any) -> Iterator[Any]:
    """Tensors and devices of the program itself: parameters, buffers, and the arguments of its nodes."""
    if isinstance(model, torch.nn.Module):
        yield from model.parameters()
        yield from model.buffers()
    if isinstance(model, torch.fx.GraphModule):
        for node in model.graph.nodes:
            yield from pytree.tree_leaves((node.args, node.kwargs, node.meta.get("example_value")))
