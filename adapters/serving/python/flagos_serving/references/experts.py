"""Mixture of experts over packed weights.

``fused_experts(x, w13, w2, weights, experts, activation, ...)`` takes x [tokens, hidden], w13 [experts, 2·middle,
hidden] (the gates first; [experts, middle, hidden] for an activation without a gate), w2 [experts, hidden, middle],
the weights and numbers of the chosen experts [tokens, k] (-1: none), and returns [tokens, hidden] in x's dtype.

``expert_map`` int32 [all experts] has the place in w13 of each expert, or -1 for those of other ranks. ``limit`` is
of silu's gate, from above, and of the values it gates, from both sides. For ``swiglustep`` it is of what silu makes of
the gate (7 if it is not given).

``align_experts(experts, count, block)`` sorts the chosen of ``count`` experts [tokens, k] for kernels that compute
blocks of one expert each. It returns int32 the places in ``experts`` by expert, each expert's filled up to whole blocks
with the number of all places; the expert of each block, -1 first; and how many places there are with the filling [1].
Sizes do not depend on the experts, so that graphs can have it: what is behind that number has no meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import quantized


def activate(x: Tensor, activation: str, limit: float | None) -> Tensor:
    """The activation of the products with w13, by its name."""
    if activation == "swiglustep":
        most = 7.0 if limit is None else limit
        gate, value = x.chunk(2, dim=-1)
        return F.silu(gate).clamp(max=most) * value.clamp(-most, most)
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


def align_experts(experts: Tensor, count: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """See the module."""
    chosen = experts.flatten().long() + 1  # -1 becomes the first
    total = chosen.numel()
    sizes = chosen.new_zeros(count + 1).scatter_add_(0, chosen, torch.ones_like(chosen))
    filled = (sizes + block - 1).div(block, rounding_mode="floor") * block
    ends = filled.cumsum(0)
    order = chosen.argsort(stable=True)
    ordered = chosen[order]
    shift = (ends - filled) - (sizes.cumsum(0) - sizes)
    places = torch.arange(total, device=experts.device) + shift[ordered]
    room = room_for(total, count, block)
    by_expert = torch.full((room,), total, dtype=torch.int32, device=experts.device)
    by_expert.scatter_(0, places, order.int())
    starts = torch.arange(0, room, block, device=experts.device)
    of_blocks = torch.searchsorted(ends, starts, right=True).clamp_(max=count) - 1
    return by_expert, of_blocks.int(), ends[-1:].int()


def room_for(total: int, count: int, block: int) -> int:
    """The most places that ``total`` chosen experts need in blocks."""
    return total + min(total, count + 1) * (block - 1)


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

    def product(given: Tensor, expert: int, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(given, weight[expert], None if bias is None else bias[expert])

    return _summed(
        x,
        w13.shape[0],
        weights,
        experts,
        lambda given, expert, rows: product(given, expert, w13, bias13),
        lambda hidden, expert, rows: product(hidden, expert, w2, bias2),
        activation,
        weights_on_input=weights_on_input,
        expert_map=expert_map,
        limit=limit,
    )


def experts_with_adapters(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    adapters: Tensor,
    a13: Sequence[Tensor],
    b13: Sequence[Tensor],
    a2: Tensor,
    b2: Tensor,
    *,
    weights_on_input: bool = False,
    all_experts: int = -1,
    expert_map: Tensor | None = None,
    limit: float | None = None,
) -> Tensor:
    """The same with adapters (LoRA): ``adapters`` int64 [tokens] has the place of a token's, or -1.

    a13 are of parts of w13's rows [adapters, experts or 1, rank, hidden], b13 [adapters, experts, rows of the part,
    rank]; a2 [adapters, experts, rank, middle] and b2 [adapters, experts or 1, hidden, rank] are of w2.
    """

    def added(given: Tensor, expert: int, rows: Tensor, a: Tensor, b: Tensor) -> Tensor:
        result = given.new_zeros(given.shape[0], b.shape[2])
        of_rows = adapters[rows]
        for one in of_rows.unique().tolist():
            if one < 0:
                continue
            mine = of_rows == one
            first, second = (m[one, expert if m.shape[1] > 1 else 0] for m in (a, b))
            result[mine] = F.linear(F.linear(given[mine], first.to(x.dtype)), second.to(x.dtype))
        return result

    def into(given: Tensor, expert: int, rows: Tensor) -> Tensor:
        parts = [added(given, expert, rows, a, b) for a, b in zip(a13, b13, strict=True)]
        return F.linear(given, w13[expert]) + torch.cat(parts, dim=-1)

    def out_of(hidden: Tensor, expert: int, rows: Tensor) -> Tensor:
        return F.linear(hidden, w2[expert]) + added(hidden, expert, rows, a2, b2)

    return _summed(
        x,
        w13.shape[0],
        weights,
        experts,
        into,
        out_of,
        activation,
        weights_on_input=weights_on_input,
        expert_map=expert_map,
        limit=limit,
    )


def quantized_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    scales13: Tensor,
    scales2: Tensor,
    zeros13: Tensor | None,
    zeros2: Tensor | None,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    form: str,
    *,
    weights_on_input: bool = False,
    all_experts: int = -1,
    expert_map: Tensor | None = None,
) -> Tensor:
    """The same of weights of integers.

    ``form``: ``w4a16`` and ``w8a16`` are those of `quantized.grouped_linear`, ``w8a8`` those of
    `quantized.rounded_linear`, each with a dimension for the experts before.
    """
    bits = {"w4a16": 4, "w8a16": 8, "w8a8": 0}
    if form not in bits:
        raise decline(f"the reference of the experts does not know weights as {form!r}")

    def product(
        given: Tensor, expert: int, weight: Tensor, scales: Tensor, zeros: Tensor | None
    ) -> Tensor:
        if not bits[form]:
            return quantized.rounded_linear(given, weight[expert], scales[expert])
        zero = None if zeros is None else zeros[expert]
        return quantized.grouped_linear(given, weight[expert], scales[expert], zero, bits[form])

    return _summed(
        x,
        w13.shape[0],
        weights,
        experts,
        lambda given, expert, rows: product(given, expert, w13, scales13, zeros13),
        lambda hidden, expert, rows: product(hidden, expert, w2, scales2, zeros2),
        activation,
        weights_on_input=weights_on_input,
        expert_map=expert_map,
        limit=None,
    )


def _summed(
    x: Tensor,
    count: int,
    weights: Tensor,
    experts: Tensor,
    first: Callable[[Tensor, int, Tensor], Tensor],
    second: Callable[[Tensor, int, Tensor], Tensor],
    activation: str,
    *,
    weights_on_input: bool,
    expert_map: Tensor | None,
    limit: float | None,
) -> Tensor:
    if weights_on_input and experts.shape[1] != 1:
        raise decline("weights on the input are for one expert a token")
    chosen = experts.long()
    if expert_map is not None:
        chosen = torch.where(chosen < 0, chosen, expert_map.long()[chosen])
    output = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for expert in range(count):
        rows, places = (chosen == expert).nonzero(as_tuple=True)
        if rows.numel() == 0:
            continue
        share = weights[rows, places, None].float()
        given = x[rows] * share.to(x.dtype) if weights_on_input else x[rows]
        hidden = activate(first(given, expert, rows), activation, limit)
        made = second(hidden, expert, rows).float()
        output.index_add_(0, rows, made if weights_on_input else made * share)
    return output.to(x.dtype)
