"""Backward passes of CUDA tensors beside flagos ones.

torch's engine knows one accelerator per process, which is flagos once it is registered. The native
module answers the engine's questions about it (csrc/cuda/autograd.cc); here each backward pass says first
which of the two its graph is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.autograd
import torch.autograd.graph

_run = torch.autograd.graph._engine_run_backward


def _is_on_cuda(edge: Any) -> bool:
    """Whether the graph behind a GradientEdge computed on CUDA."""
    pending: list[Any] = [edge.node]
    seen: set[Any] = set()
    while pending:
        node = pending.pop()
        types = {each.device.type for each in node._input_metadata} - {"cpu"}
        if types:
            return "cuda" in types
        nodes = {following for following, _ in node.next_functions if following is not None} - seen
        seen |= nodes
        pending.extend(nodes)
    return False


def _run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    tensors = [output for output in t_outputs if isinstance(output, torch.Tensor)]
    edges = (output for output in t_outputs if not isinstance(output, torch.Tensor))
    torch.ops.flagos.enter_backward(tensors, any(_is_on_cuda(edge) for edge in edges))
    try:
        return _run(t_outputs, *args, **kwargs)
    finally:
        torch.ops.flagos.exit_backward()


def install() -> None:
    """Wrap the one function through which torch starts its autograd engine."""
    for place in (torch.autograd.graph, torch.autograd):
        setattr(place, _run.__name__, _run_backward)
