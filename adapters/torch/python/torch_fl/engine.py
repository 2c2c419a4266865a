"""Backward passes of CUDA tensors beside flagos ones, under the cuda vendor.

torch's engine knows one accelerator per process, which is flagos once it is registered. The native
module answers the engine's questions about it (csrc/engine.h); here each backward pass says first
which of the two its graph is made of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.autograd
import torch.autograd.graph

from torch_fl import _vendor

_run = torch.autograd.graph._engine_run_backward


def _run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
    tensors = [output for output in t_outputs if isinstance(output, torch.Tensor)]
    edges = (output for output in t_outputs if not isinstance(output, torch.Tensor))
    on_cuda = any(edge.node._input_metadata[edge.output_nr].device.type == "cuda" for edge in edges)
    if not torch.ops.flagos.enter_backward(tensors, on_cuda):
        return _run(t_outputs, *args, **kwargs)
    try:
        return _run(t_outputs, *args, **kwargs)
    finally:
        torch.ops.flagos.exit_backward()


def install() -> None:
    """Wrap the one function through which torch starts its engine."""
    if _vendor.on_cuda():
        for place in (torch.autograd.graph, torch.autograd):
            setattr(place, _run.__name__, _run_backward)
