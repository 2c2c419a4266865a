"""Norms, rotations, activations, quantization to 8 bits, the choice of experts, penalties.

Each writes to its first arguments, in the signatures of vLLM's operators of these names.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from flagos_serving.declaration import decline

_FP8_MAX = 448.0  # of float8_e4m3fn
_SMALLEST_SCALE = 1.0 / (_FP8_MAX * 512.0)


def _normed(x: Tensor, weight: Tensor | None, epsilon: float, dtype: torch.dtype) -> Tensor:
    wide = x.float()
    made = (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)).to(dtype)
    return made if weight is None else made * weight


def rms_norm(result: Tensor, x: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """x / sqrt(mean(x²) + epsilon) · weight over the last dimension."""
    result.copy_(_normed(x, weight, epsilon, x.dtype))


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """residual += x, and x becomes the norm of the sum."""
    residual.copy_(x.float() + residual.float())
    x.copy_(_normed(residual, weight, epsilon, x.dtype))


def rms_norm_rounded_once(result: Tensor, x: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """As `rms_norm`, but for a product with the weight in float32, as SGLang's kernels have it."""
    result.copy_(_normed_once(x.float(), weight, epsilon))


def fused_add_rms_norm_rounded_once(
    x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float
) -> None:
    """As `fused_add_rms_norm`, but for the norm of the sum before it is rounded, and the product as above."""
    total = x.float() + residual.float()
    residual.copy_(total)
    x.copy_(_normed_once(total, weight, epsilon))


def _normed_once(wide: Tensor, weight: Tensor | None, epsilon: float) -> Tensor:
    made = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + epsilon)
    return made if weight is None else made * weight.float()


def qk_norm(
    query: Tensor, key: Tensor, query_weight: Tensor, key_weight: Tensor, epsilon: float
) -> None:
    """Norms of each head of queries and keys [tokens, heads · size], in place; the weights are [size]."""
    for x, weight in ((query, query_weight), (key, key_weight)):
        heads = x.unflatten(-1, (-1, weight.shape[0]))
        heads.copy_(_normed_once(heads.float(), weight, epsilon))


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """Rotates pairs of the first 2·n dimensions of each head, where the cache is [positions, cosines n | sines n].

    Pairs are the halves of the rotated part (neox), or neighbours. ``inverse`` rotates back.
    """
    cos, sin = cos_sin_cache[positions.flatten()].float().chunk(2, dim=-1)
    cos, sin = cos[:, None], -sin[:, None] if inverse else sin[:, None]
    rotated = 2 * cos.shape[-1]
    for x in (query,) if key is None else (query, key):
        heads = x.view(positions.numel(), -1, head_size)
        part = heads[..., rope_dim_offset : rope_dim_offset + rotated]
        wide = part.float()
        part.copy_(_rotated(wide, cos, sin, is_neox))


def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """Pairs of x [batch, tokens, heads, dim], rotated by ``cos`` and ``sin`` [tokens, n] in its first 2·n dimensions.

    Pairs are the halves of the rotated part, or (``interleaved``) neighbours.
    """
    part, rest = x.tensor_split((2 * cos.shape[-1],), dim=-1)
    cos, sin = cos.float().unsqueeze(-2), sin.float().unsqueeze(-2)
    made = _rotated(part.float(), cos, sin, not interleaved)
    return torch.cat((made.to(x.dtype), rest), dim=-1)


def rotate_in_three_axes(
    query: Tensor,
    key: Tensor,
    cos: Tensor,
    sin: Tensor,
    sections: list[int],
    head_size: int,
    rotated: int,
    interleaved: bool,
    is_neox: bool = True,
) -> None:
    """Rotates pairs of query and key [tokens, heads · size] in place, by places in time, height and width.

    ``cos`` and ``sin`` are [3, tokens, rotated / 2]; of its columns ``sections`` belong to each axis, one after the
    other or (``interleaved``) in turns until those of height and width end, the rest being time's.
    """
    columns = torch.arange(rotated // 2)
    if interleaved:
        axis, turns = columns % 3, torch.tensor(sections)
        axis = torch.where(columns < 3 * turns[axis], axis, 0)
    else:
        axis = torch.repeat_interleave(torch.arange(3), torch.tensor(sections))
    axis = axis.to(cos.device)[None, None].expand(1, cos.shape[1], -1)
    cos, sin = (x.float().gather(0, axis)[0][:, None] for x in (cos, sin))
    for x in (query, key):
        part = x.view(x.shape[0], -1, head_size)[..., :rotated]
        part.copy_(_rotated(part.float(), cos, sin, is_neox))


def _rotated(x: Tensor, cos: Tensor, sin: Tensor, by_halves: bool) -> Tensor:
    first, second = x.chunk(2, dim=-1) if by_halves else (x[..., ::2], x[..., 1::2])
    made = (first * cos - second * sin, second * cos + first * sin)
    return torch.cat(made, dim=-1) if by_halves else torch.stack(made, dim=-1).flatten(-2)


def gated_rms_norm(
    x: Tensor,
    gate: Tensor | None,
    weight: Tensor,
    epsilon: float,
    group_size: int | None,
    norm_before_gate: bool,
    activation: str,
) -> Tensor:
    """The norm of each group of the last dimension, times the weight, and the activated gate before or after it."""
    factor: Tensor | float = 1.0
    if gate is not None:
        factor = torch.sigmoid(gate.float()) if activation == "sigmoid" else F.silu(gate.float())
    made = x.float() if norm_before_gate else x.float() * factor
    groups = made.unflatten(-1, (-1, group_size or x.shape[-1]))
    made = _normed_once(groups, None, epsilon).flatten(-2) * weight.float()
    return (made * factor if norm_before_gate else made).to(x.dtype)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    first, second = x.chunk(2, dim=-1)
    return first, second


def silu_and_mul(result: Tensor, x: Tensor) -> None:
    """silu(first half) · second half."""
    gate, value = _halves(x)
    result.copy_(F.silu(gate) * value)


def mul_and_silu(result: Tensor, x: Tensor) -> None:
    """first half · silu(second half)."""
    value, gate = _halves(x)
    result.copy_(value * F.silu(gate))


def gelu_and_mul(result: Tensor, x: Tensor) -> None:
    """gelu(first half) · second half."""
    gate, value = _halves(x)
    result.copy_(F.gelu(gate) * value)


def gelu_tanh_and_mul(result: Tensor, x: Tensor) -> None:
    """The same with gelu's approximation by tanh."""
    gate, value = _halves(x)
    result.copy_(F.gelu(gate, approximate="tanh") * value)


def fatrelu_and_mul(result: Tensor, x: Tensor, threshold: float) -> None:
    """The first half where it is above the threshold, times the second half."""
    gate, value = _halves(x)
    result.copy_(F.threshold(gate, threshold, 0.0) * value)


def swigluoai_and_mul(result: Tensor, x: Tensor, alpha: float = 1.702, limit: float = 7.0) -> None:
    """gate · sigmoid(alpha · gate) · (value + 1), clamped; gates and values in turns."""
    gate, value = x[..., ::2].clamp(max=limit), x[..., 1::2].clamp(-limit, limit)
    result.copy_(gate * torch.sigmoid(alpha * gate) * (value + 1))


def silu_and_mul_with_clamp(
    result: Tensor, x: Tensor, limit: float, alpha: float = 1.0, beta: float = 0.0
) -> None:
    """gate · sigmoid(alpha · gate) · (value + beta), clamped; the gates first."""
    gate, value = _halves(x)
    gate, value = gate.clamp(max=limit), value.clamp(-limit, limit)
    result.copy_(gate * torch.sigmoid(alpha * gate) * (value + beta))


def gelu_new(result: Tensor, x: Tensor) -> None:
    """gelu by tanh(√(2/π) · (x + 0.044715 x³))."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x.pow(3.0))
    result.copy_(0.5 * x * (1.0 + torch.tanh(inner)))


def gelu_fast(result: Tensor, x: Tensor) -> None:
    """The same with √(2/π) rounded to ten digits."""
    result.copy_(0.5 * x * (1.0 + torch.tanh(x * 0.7978845608 * (1.0 + 0.044715 * x * x))))


def gelu_quick(result: Tensor, x: Tensor) -> None:
    """x · sigmoid(1.702 x)."""
    result.copy_(x * torch.sigmoid(1.702 * x))


def relu_squared(result: Tensor, x: Tensor) -> None:
    """relu(x)²."""
    result.copy_(F.relu(x).square())


def _quantized(result: Tensor, x: Tensor, scale: Tensor) -> None:
    """Writes as many rows as ``x`` has: results may be padded for ``torch._scaled_mm``."""
    limits = torch.finfo(result.dtype)
    eight = (x.float() / scale.float()).clamp(limits.min, limits.max).to(result.dtype)
    result[: x.shape[0]].copy_(eight)


def static_scaled_fp8_quant(
    result: Tensor, x: Tensor, scale: Tensor, group_shape: list[int] | None = None
) -> None:
    """x / scale in 8 bits. ``scale`` is one number, or one for each token or column."""
    if (
        scale.numel() > 1
        and group_shape is not None
        and tuple(group_shape) not in ((1, -1), (-1, 1))
    ):
        raise decline(
            f"the reference of static_scaled_fp8_quant takes a scale for everything, each token or each column, not "
            f"for groups of {tuple(group_shape)}"
        )
    if scale.numel() > 1 and scale.dim() == 1:
        by_token = group_shape is not None and tuple(group_shape) == (1, -1)
        scale = scale[:, None] if by_token else scale[None, :]
    _quantized(result, x, scale)


def dynamic_scaled_fp8_quant(result: Tensor, x: Tensor, scale: Tensor) -> None:
    """x in 8 bits, with the scale of its largest value."""
    found = (x.float().abs().max() / _FP8_MAX).clamp(min=_SMALLEST_SCALE)
    scale.copy_(found.reshape(scale.shape))
    _quantized(result, x, found)


def dynamic_per_token_scaled_fp8_quant(
    result: Tensor, x: Tensor, scale: Tensor, scale_ub: Tensor | None
) -> None:
    """x in 8 bits, with a scale for each token, from values of at most ``scale_ub``."""
    most = x.float().abs().amax(dim=-1, keepdim=True)
    if scale_ub is not None:
        most = torch.minimum(most, scale_ub.float())
    found = (most / _FP8_MAX).clamp(min=_SMALLEST_SCALE)
    scale[: x.shape[0]].copy_(found)
    _quantized(result, x, found)


def per_token_group_fp8_quant(
    x: Tensor,
    result: Tensor,
    scales: Tensor,
    group_size: int,
    eps: float,
    fp8_min: float,
    fp8_max: float,
    by_powers_of_2: bool,
    column_major: bool = False,
    aligned: bool = False,
) -> None:
    """x [..., columns] in 8 bits, with a scale for each ``group_size`` columns, from a largest value of at least eps.

    ``scales`` [..., groups] may have any strides, so that the last two say nothing more here.
    """
    groups = x.float().unflatten(-1, (-1, group_size))
    found = groups.abs().amax(-1).clamp(min=eps) / fp8_max
    if by_powers_of_2:
        found = torch.exp2(torch.ceil(torch.log2(found)))
    scales.copy_(found)
    eight = (groups / found[..., None]).clamp(fp8_min, fp8_max)
    result.copy_(eight.flatten(-2).to(result.dtype))


def weak_ref_tensor(x: Tensor) -> Tensor:
    """A tensor over the same memory, which does not keep it."""
    storage = torch._C._construct_storage_from_data_pointer(
        x.untyped_storage().data_ptr(), x.device, x.untyped_storage().nbytes()
    )
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(
        storage, x.storage_offset(), x.shape, x.stride()
    )


def _chosen(
    weights: Tensor,
    experts: Tensor,
    rows: Tensor,
    scores: Tensor,
    renormalize: bool,
    bias: Tensor | None,
) -> Tensor:
    """Writes the numbers of the best experts, and returns their scores; ``bias`` counts for the choice alone."""
    biased = scores if bias is None else scores + bias.float()
    numbers = torch.topk(biased, weights.shape[1], dim=-1).indices
    found = scores.gather(1, numbers)
    if renormalize:
        found = found / found.sum(-1, keepdim=True)
    experts.copy_(numbers)
    tokens, k = weights.shape
    places = torch.arange(k, device=rows.device)[None, :] * tokens
    rows.copy_(places + torch.arange(tokens, device=rows.device)[:, None])
    return found


def leave_out(weights: Tensor, experts: Tensor, is_padding: Tensor | None) -> None:
    """Takes the experts of the tokens away for which bool [tokens] ``is_padding`` is set: weight 0, number -1."""
    if is_padding is not None:
        weights.masked_fill_(is_padding[:, None], 0.0)
        experts.masked_fill_(is_padding[:, None], -1)


def topk_softmax(
    weights: Tensor,
    experts: Tensor,
    rows: Tensor,
    gating: Tensor,
    renormalize: bool,
    bias: Tensor | None,
    is_padding: Tensor | None = None,
) -> None:
    """The best experts of each token, by the softmax of ``gating`` [tokens, experts]."""
    scores = torch.softmax(gating.float(), dim=-1)
    weights.copy_(_chosen(weights, experts, rows, scores, renormalize, bias))
    leave_out(weights, experts, is_padding)


def topk_sigmoid(
    weights: Tensor,
    experts: Tensor,
    rows: Tensor,
    gating: Tensor,
    renormalize: bool,
    bias: Tensor | None,
    factor: float,
    is_padding: Tensor | None = None,
) -> None:
    """The same by the sigmoid, times ``factor``."""
    scores = torch.sigmoid(gating.float())
    weights.copy_(_chosen(weights, experts, rows, scores, renormalize, bias) * factor)
    leave_out(weights, experts, is_padding)


def grouped_topk(
    scores: Tensor,
    groups: int,
    best_groups: int,
    k: int,
    renormalize: bool,
    factor: float,
    bias: Tensor,
    scoring: int,
) -> tuple[Tensor, Tensor]:
    """Weights and numbers [tokens, k] of the best experts, chosen from the ``best_groups`` best of ``groups`` groups.

    ``scores`` [tokens, experts] are probabilities (``scoring`` 0) or, for their sigmoid, logits (1). ``bias`` [experts]
    counts for the choice alone. A group is as good as the sum of its two best experts.
    """
    known = scores.float().sigmoid() if scoring == 1 else scores.float()
    by_group = (known + bias.float()).unflatten(-1, (groups, -1))
    best = by_group.topk(2, dim=-1).values.sum(-1).topk(best_groups, dim=-1).indices
    left_out = torch.ones_like(by_group[..., 0], dtype=torch.bool).scatter_(-1, best, False)
    judged = by_group.masked_fill(left_out[..., None], -torch.inf).flatten(-2)
    numbers = judged.topk(k, dim=-1).indices
    weights = known.gather(-1, numbers)
    if renormalize:
        weights = weights / weights.sum(-1, keepdim=True)
    return weights * factor, numbers.int()


def apply_repetition_penalties_(
    logits: Tensor, in_prompt: Tensor, in_output: Tensor, penalties: Tensor
) -> None:
    """Divides logits [requests, tokens] above 0 by the request's penalty, and multiplies others by it, in place.

    Of the tokens alone that the prompt or the output has: bool [requests, tokens] each.
    """
    penalty = torch.where(in_prompt | in_output, penalties.float()[:, None], 1.0)
    logits.copy_(torch.where(logits > 0, logits / penalty, logits * penalty))


def moe_sum(
    x: Tensor, output: Tensor, topk_ids: Tensor | None = None, expert_map: Tensor | None = None
) -> None:
    """The sum over the chosen experts of x [tokens, k, hidden]; those of other ranks are left out."""
    if topk_ids is not None and expert_map is not None:
        here = expert_map[topk_ids.long()] >= 0
        x = torch.where(here[..., None], x, torch.zeros_like(x))
    output.copy_(x.float().sum(dim=1))


def moe_align_block_size(
    topk_ids: Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: Tensor,
    experts_ids: Tensor,
    num_tokens_post_pad: Tensor,
    expert_map: Tensor | None = None,
    scatter_idx: Tensor | None = None,
) -> None:
    """Sorts the places of ``topk_ids`` by expert, each expert's beginning a block of ``block_size``.

    ``sorted_token_ids`` gets the places, and the number of places between them; ``experts_ids`` the expert of each
    block; ``num_tokens_post_pad`` the number of places with those between. Other ranks' experts are left out, and -1.
    ``scatter_idx`` gets each place, or -1 for one that is left out.
    """
    chosen = topk_ids.flatten().long()
    known = (chosen >= 0) & (chosen < num_experts)
    if expert_map is not None:
        chosen = expert_map.long()[chosen.clamp(0, num_experts - 1)]
        known &= chosen >= 0
    chosen = torch.where(known, chosen, num_experts)
    counts = torch.bincount(chosen, minlength=num_experts + 1)
    padded = (counts[:num_experts] + block_size - 1) // block_size * block_size
    ends = padded.cumsum(0)
    order = chosen.argsort(stable=True)[: int(known.sum())]
    of = chosen[order]
    within = torch.arange(len(order), device=order.device) - (counts.cumsum(0) - counts)[of]
    sorted_token_ids.fill_(chosen.numel())
    sorted_token_ids[(ends - padded)[of] + within] = order.to(sorted_token_ids.dtype)
    blocks = torch.arange(len(experts_ids), device=order.device) * block_size
    experts = torch.searchsorted(ends, blocks, right=True)
    experts_ids.copy_(torch.where(experts < num_experts, experts, 0))
    num_tokens_post_pad.copy_(ends[-1:])
    if scatter_idx is not None:
        places = torch.arange(chosen.numel(), device=chosen.device)
        scatter_idx.copy_(torch.where(known, places, -1).view_as(scatter_idx))


def concat_and_cache_mla(
    kv_c: Tensor,
    k_pe: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str,
    scale: Tensor,
    skip_scale: bool = False,
) -> None:
    """Writes kv_c and k_pe of each token beside each other to its slot of kv_cache [blocks, block size, both]."""
    if kv_cache_dtype != "auto":
        raise decline(
            f"the reference of concat_and_cache_mla does not know a cache of {kv_cache_dtype}"
        )
    used = slot_mapping >= 0
    slots, size = slot_mapping[used], kv_cache.shape[1]
    rows = torch.cat((kv_c, k_pe.reshape(k_pe.shape[0], -1)), dim=-1)[: len(used)]
    kv_cache[slots // size, slots % size] = rows[used].to(kv_cache.dtype)
