"""Mixture of experts over packed weights.

``fused_experts(x, w13, w2, weights, experts, activation, ...)`` takes x [tokens, hidden], w13 [experts, 2·middle,
hidden] (the gates first; [experts, middle, hidden] for an activation without a gate), w2 [experts, hidden, middle],
the weights and numbers of the chosen experts [tokens, k] (-1: none), and returns [tokens, hidden] in x's dtype.

``expert_map`` int32 [all experts] has the place in w13 of each expert, or -1 for those of other ranks. ``limit`` is
of silu's gate, from above, and of the values it gates, from both sides.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from flagos_serving.declaration import decline


def _activate(x: Tensor, activation: str, limit: float | None) -> Tensor:
    if limit is not None:
        if activation != "silu":
            raise decline(f"a limit is silu's, not one of {activation!r}")
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate.clamp(max=limit)) * value.clamp(-limit, limit)
    single: dict[str, Callable[[Tensor], Tensor]] = {
        "silu_no_mul": F.silu,
        "gelu_no_mul": F.gelu,
        "gelu_tanh_no_mul": lambda x: F.gelu(x, approximate="tanh"),
        "relu2_no_mul": lambda x: F.relu(x).square(),
    }
    if activation in single:
        return single[activation](x)
    if activation == "swigluoai":  # gates and values in turns
        gate, value = x[..., ::2].clamp(max=7.0), x[..., 1::2].clamp(-7.0, 7.0)
        return gate * torch.sigmoid(1.702 * gate) * (value + 1)
    if activation == "swiglustep":
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate).clamp(max=7.0) * value.clamp(-7.0, 7.0)
    gated: dict[str, Callable[[Tensor], Tensor]] = {
        "silu": F.silu,
        "gelu": F.gelu,
        "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
        "relu2": lambda x: F.relu(x).square(),
    }
    if activation not in gated:
        raise decline(f"the reference of the experts does not know the activation {activation!r}")
    gate, value = x.chunk(2, dim=-1)
    return gated[activation](gate) * value


def fused_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    *,
    weights_on_input: bool = False,
    all_experts: int = -1,
    expert_map: Tensor | None = None,
    bias13: Tensor | None = None,
    bias2: Tensor | None = None,
    limit: float | None = None,
) -> Tensor:
    """Tokens sorted by expert, one product per expert; the sum over experts in float32."""
    if weights_on_input and experts.shape[1] != 1:
        raise decline("weights on the input are for one expert a token")
    chosen = experts.long()
    if expert_map is not None:
        chosen = torch.where(chosen < 0, chosen, expert_map.long()[chosen])
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in range(w13.shape[0]):
        rows, places = (chosen == expert).nonzero(as_tuple=True)
        if rows.numel() == 0:
            continue
        share = weights[rows, places, None].float()
        given = x[rows] * share.to(x.dtype) if weights_on_input else x[rows]
        hidden = F.linear(given, w13[expert], None if bias13 is None else bias13[expert])
        made = F.linear(
            _activate(hidden, activation, limit),
            w2[expert],
            None if bias2 is None else bias2[expert],
        )
        output.index_add_(0, rows, made.float() if weights_on_input else made.float() * share)
    return output.to(x.dtype)
