"""FlexAttention in a graph where host code computes on device memory: Inductor's kernel for the CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch._inductor.kernel.flex.flex_cpu import lower_cpu
from torch._inductor.lowering import lowerings

from torch_fl.native import native

_DEVICE = "flagos"


def register() -> None:
    """Make Inductor take its lowering for the CPU. By itself it decides by the name of the device. Does nothing on
    other devices."""
    if native().compiled_by != "host code":
        return
    operator = torch.ops.higher_order.flex_attention
    theirs = lowerings[operator]

    def lower(query: Any, *arguments: Any, **named: Any) -> Any:
        ours = query.get_device().type == _DEVICE
        return (lower_cpu if ours else theirs)(query, *arguments, **named)

    lowerings[operator] = lower
