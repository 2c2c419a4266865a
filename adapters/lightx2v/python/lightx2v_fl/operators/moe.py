"""Mixture of experts over packed weights.

``moe(x, experts, scales, fc1, fc2, fc1_bias, fc2_bias, activation)`` takes x [tokens, in], the chosen
experts [tokens, k] (integers) and their float32 scales [tokens, k], fc1 [experts, middle, in] and fc2
[experts, out, inner], biases [experts, middle] and [experts, out] or None, and returns [tokens, out] in
x's dtype: Σ scale · (activation(x @ fc1ᵀ + b1) @ fc2ᵀ + b2).

``activation`` is ``gelu``, or ``swiglu``, which multiplies the first half of fc1's output by the SiLU of
the second half: LightX2V packs the gate last.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

from lightx2v_fl.operators.implementations import declare, decline, flaggems_function

ACTIVATIONS = ("gelu", "swiglu")


def _activate(projected: Tensor, activation: str) -> Tensor:
    if activation == "gelu":
        return F.gelu(projected)
    value, gate = projected.chunk(2, dim=-1)
    return value * F.silu(gate)


def _native(
    x: Tensor,
    experts: Tensor,
    scales: Tensor,
    fc1: Tensor,
    fc2: Tensor,
    fc1_bias: Tensor | None,
    fc2_bias: Tensor | None,
    activation: str,
) -> Tensor:
    """Tokens sorted by expert, one product per expert."""
    top_k = experts.shape[1]
    flat = experts.reshape(-1).to(torch.int64)
    order = torch.argsort(flat, stable=True)
    rows = x.index_select(0, order // top_k)
    counts = torch.bincount(flat, minlength=fc1.shape[0]).tolist()
    parts = []
    for expert, part in enumerate(rows.split(counts)):
        if part.shape[0]:
            hidden = F.linear(part, fc1[expert], None if fc1_bias is None else fc1_bias[expert])
            hidden = _activate(hidden, activation)
            parts.append(
                F.linear(hidden, fc2[expert], None if fc2_bias is None else fc2_bias[expert])
            )
    routed = torch.empty(flat.shape[0], fc2.shape[1], dtype=x.dtype, device=x.device)
    routed.index_copy_(0, order, torch.cat(parts))
    weighted = routed.view(-1, top_k, fc2.shape[1]).float() * scales.float().unsqueeze(-1)
    return weighted.sum(dim=1).to(x.dtype)


def _reference(
    x: Tensor,
    experts: Tensor,
    scales: Tensor,
    fc1: Tensor,
    fc2: Tensor,
    fc1_bias: Tensor | None,
    fc2_bias: Tensor | None,
    activation: str,
) -> Tensor:
    """Every expert over every token, in float32."""
    wide = x.float()
    output = torch.zeros(x.shape[0], fc2.shape[1], dtype=torch.float32, device=x.device)
    for expert in range(fc1.shape[0]):
        share = (scales.float() * (experts == expert)).sum(dim=1, keepdim=True)
        hidden = wide @ fc1[expert].float().t()
        if fc1_bias is not None:
            hidden = hidden + fc1_bias[expert].float()
        hidden = _activate(hidden, activation) @ fc2[expert].float().t()
        if fc2_bias is not None:
            hidden = hidden + fc2_bias[expert].float()
        output += share * hidden
    return output.to(x.dtype)


_gate_first = WeakTensorKeyDictionary()


def _with_gate_first(fc1: Tensor) -> Tensor:
    """fc1 with its halves swapped, as FlagGems' kernel takes it; cached as long as the weight lives."""
    swapped: Tensor | None = _gate_first.get(fc1)
    if swapped is None:
        value, gate = fc1.chunk(2, dim=1)
        swapped = torch.cat((gate, value), dim=1)
        _gate_first[fc1] = swapped
    return swapped


def _flaggems(
    x: Tensor,
    experts: Tensor,
    scales: Tensor,
    fc1: Tensor,
    fc2: Tensor,
    fc1_bias: Tensor | None,
    fc2_bias: Tensor | None,
    activation: str,
) -> Tensor:
    if activation != "swiglu":
        raise decline(f"FlagGems' fused experts compute SwiGLU, not {activation}")
    if fc1_bias is not None or fc2_bias is not None:
        raise decline("FlagGems' fused experts are used without biases")
    kernel = flaggems_function("fused.fused_moe", "outplace_fused_experts")
    result: Tensor = kernel(
        x.contiguous(),
        _with_gate_first(fc1),
        fc2,
        scales.float(),
        experts.to(torch.int32),
        activation="silu",
    )
    return result


moe = declare("moe", native=_native, reference=_reference, flaggems=_flaggems)
