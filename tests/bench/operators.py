"""The operators whose cost is compared between devices, on 8×8 float32: what is left is overhead."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

#: Operators that only make a new view: their budget is a tighter one.
VIEWS = ("view", "t")


def calls(device: str) -> dict[str, Callable[[], object]]:
    """One call of each operator on `device`, ready to be repeated."""
    x = torch.ones(8, 8, device=device)
    y = torch.ones(8, 8, device=device)
    zero = torch.zeros(8, 8, device=device)
    query = torch.ones(1, 1, 8, 8, device=device)
    target = torch.device(device)
    pair = [x, y]
    return {
        "add": lambda: x + y,
        "add_": lambda: x.add_(zero),
        "mul": lambda: x * y,
        "mm": lambda: torch.mm(x, y),
        "view": lambda: x.view(64),
        "t": lambda: x.t(),
        "empty": lambda: torch.empty(8, 8, device=target),
        "softmax": lambda: torch.softmax(x, -1),
        "layer_norm": lambda: functional.layer_norm(x, (8,)),
        "sdpa": lambda: functional.scaled_dot_product_attention(query, query, query),
        "cat": lambda: torch.cat(pair),
        "copy_": lambda: x.copy_(y),
    }
