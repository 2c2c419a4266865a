"""Attention through torch's scaled_dot_product_attention.

Queries, keys and values are three tensors in sbhd, bshd, bhsd or thd. Tensors of a packed layout are views
of one tensor. Masks are built on the device, so the host never waits for the lengths of sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from flagos._core import UnsupportedError
from te_fl.calls import Args, Kwargs
from te_fl.operators.attention_call import (
    Call,
    backward_arguments,
    format_of,
    formats_of,
    forward_arguments,
    understand,
)

#: (call, q, k, v) → the output, and (call, q, k) → the log-sum-exp, of tensors as (b, h, s, d).
Attend = Callable[[Call, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
LogSumExp = Callable[[Call, torch.Tensor, torch.Tensor], torch.Tensor]
#: (call, (q, k, v), output, its gradient, log-sum-exp) → the gradients of q, k, v and of the bias.
Differentiate = Callable[
    [Call, tuple[torch.Tensor, ...], torch.Tensor, torch.Tensor, torch.Tensor],
    tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None],
]

# The number of float32 scores kept at once: 1 GiB.
_SCORES = 1 << 28


def to_bhsd(x: torch.Tensor, layout: str) -> torch.Tensor:
    """A view as (b, h, s, d). Packed sequences (thd) become one sequence of a batch of one."""
    if layout == "bhsd":
        return x
    if layout == "sbhd":
        return x.permute(1, 2, 0, 3)
    return x.transpose(1, 2) if layout == "bshd" else x.transpose(0, 1).unsqueeze(0)


def _from_bhsd(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "bhsd":
        return x.contiguous()
    if layout == "sbhd":
        return x.permute(2, 0, 1, 3).contiguous()
    return (x.transpose(1, 2) if layout == "bshd" else x.squeeze(0).transpose(0, 1)).contiguous()


def _place(
    cu: torch.Tensor, offsets: torch.Tensor | None, tokens: int, packed: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """For each token: its sequence, its position and the sequence's length.

    The shapes are (1, tokens) for packed sequences, else (b, tokens). ``offsets`` has the beginnings of packed
    sequences with padding between them.
    """
    lengths = cu.to(torch.long).diff()
    if packed:
        begins = cu.to(torch.long) if offsets is None else offsets.to(torch.long)
        token = torch.arange(tokens, device=cu.device)
        sequence = torch.searchsorted(begins, token, right=True) - 1
        inside = sequence.clamp(max=lengths.numel() - 1)
        position, length = token - begins[inside], lengths[inside]
        return sequence[None], position[None], length[None]
    position = torch.arange(tokens, device=cu.device).expand(lengths.numel(), -1)
    return torch.zeros_like(position), position, lengths[:, None].expand_as(position)


def _allowed(call: Call, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """The mask (b or 1, 1, queries, keys), True for pairs that may attend; ``None`` when all may."""
    sq, sk = q.shape[2], k.shape[2]
    packed = call.q_format == "thd"
    causal = "CAUSAL" in call.mask
    left, right = call.window
    padded = "PADDING" in call.mask or packed
    if not (causal or padded or left >= 0 or right >= 0):
        return None
    if padded:
        cu_q, cu_kv = call.lengths
        if cu_q is None or cu_kv is None:
            raise ValueError("a padding mask and thd need cu_seqlens_q and cu_seqlens_kv")
        seq_q, pos_q, len_q = _place(cu_q, call.offsets[0], sq, packed)
        seq_k, pos_k, len_k = _place(cu_kv, call.offsets[1], sk, packed)
    else:
        zero = torch.zeros(1, max(sq, sk), dtype=torch.long, device=q.device)
        seq_q, seq_k = zero[:, :sq], zero[:, :sk]
        pos_q, pos_k = (torch.arange(n, device=q.device)[None] for n in (sq, sk))
        len_q, len_k = torch.full_like(seq_q, sq), torch.full_like(seq_k, sk)
    allowed = seq_q[:, :, None] == seq_k[:, None, :]
    if padded:
        allowed = allowed & (pos_q < len_q)[:, :, None] & (pos_k < len_k)[:, None, :]
    row = pos_q[:, :, None]
    if call.bottom_right:
        row = row + (len_k[:, None, :] - len_q[:, :, None])
    distance = pos_k[:, None, :] - row
    if causal or right >= 0:
        allowed = allowed & (distance <= (0 if causal else right))
    if left >= 0:
        allowed = allowed & (distance >= -left)
    return allowed.unsqueeze(1)


def scores_mask(call: Call, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor | None:
    """The mask of the scores: a bias that is added, or a bool mask; ``None`` when all scores count."""
    allowed = _allowed(call, q, k)
    if call.bias is None:
        return allowed
    bias = call.bias.to(q.dtype)
    return bias if allowed is None else bias.masked_fill(~allowed, float("-inf"))


def _attend(call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The output (b, h, queries, d): 0 for a query that may attend to no key."""
    mask = scores_mask(call, q, k)
    out = F.scaled_dot_product_attention(
        q, k, v, attn_mask=mask, scale=call.scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    if mask is None:
        return out
    some = mask if mask.dtype == torch.bool else mask > float("-inf")
    return torch.where(some.any(-1, keepdim=True), out, 0.0)


def _logsumexp(call: Call, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The log-sum-exp of the scores, (b, h, queries, 1) in float32.

    Computed for some queries at a time: all scores of 16k tokens are 32 GiB.
    """
    keys = k.repeat_interleave(q.shape[1] // k.shape[1], 1).float().mT
    mask = scores_mask(call, q, k)
    if mask is not None:
        mask = mask.expand(*mask.shape[:2], q.shape[2], k.shape[2])
    rows = max(1, _SCORES // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    parts = []
    for begin in range(0, max(1, q.shape[2]), rows):
        scores = (q[:, :, begin : begin + rows].float() @ keys).mul_(call.scale)
        if mask is not None:
            here = mask[:, :, begin : begin + rows]
            if here.dtype == torch.bool:
                scores.masked_fill_(~here, float("-inf"))
            else:
                scores.add_(here)
        parts.append(torch.logsumexp(scores, -1, keepdim=True))
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _differentiate(
    call: Call,
    qkv: tuple[torch.Tensor, ...],
    out: torch.Tensor,
    dout: torch.Tensor,
    statistics: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """The gradients where ``out`` and ``statistics`` are of more keys than k has, for some queries at a time."""
    q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in qkv)
    groups = q.shape[1] // k.shape[1]
    k, v = (x.repeat_interleave(groups, 1) for x in (k, v))
    mask = scores_mask(call, *qkv[:2])
    if mask is not None:
        mask = mask.expand(*mask.shape[:2], q.shape[2], k.shape[2])
    biases = None if call.bias is None else torch.zeros_like(call.bias, dtype=q.dtype)
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k), torch.zeros_like(v)
    rows = max(1, _SCORES // max(1, q.shape[0] * q.shape[1] * k.shape[2]))
    for begin in range(0, q.shape[2], rows):
        part = slice(begin, begin + rows)
        scores = (q[:, :, part] @ k.mT).mul_(call.scale)
        if mask is not None and mask.dtype == torch.bool:
            scores.masked_fill_(~mask[:, :, part], float("-inf"))
        elif mask is not None:
            scores.add_(mask[:, :, part])
        # A query without a key has no finite score, and no weight.
        weights = (scores - statistics[:, :, part]).exp_().nan_to_num_(0.0)
        gradient = dout[:, :, part].to(q.dtype)
        dv += weights.mT @ gradient
        of_weights = gradient @ v.mT - (gradient * out[:, :, part]).sum(-1, keepdim=True)
        of_scores = weights * of_weights
        dq[:, :, part] = (of_scores @ k) * call.scale
        dk += (of_scores.mT @ q[:, :, part]) * call.scale
        if biases is not None:
            here = biases[:, :, part] if biases.shape[2] > 1 else biases
            here += of_scores.sum_to_size(here.shape)
    dk, dv = (x.unflatten(1, (-1, groups)).sum(2) for x in (dk, dv))
    return dq, dk, dv, biases


def fused_attn_fwd(*args: Any, **kwargs: Any) -> list[torch.Tensor]:
    """[output, log-sum-exp of the scores (b, h, q, 1), state of the random generator].

    The output is shaped like ``Q`` (with the head size of ``V``), or as ``o_format`` says. Dropout in
    training, sinks, paged keys and FP8 are declined.
    """
    return forward(_attend, _logsumexp, args, kwargs)


def forward(attend: Attend, logsumexp: LogSumExp, args: Args, kwargs: Kwargs) -> list[torch.Tensor]:
    """``fused_attn_fwd`` with ``attend`` and ``logsumexp`` as its formulas."""
    args, kwargs = forward_arguments(args, kwargs)
    return _forward(attend, logsumexp, *args, **kwargs)


def _forward(
    attend: Attend,
    logsumexp: LogSumExp,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    is_training: bool,
    attn_scale: float,
    p_dropout: float,
    set_zero: bool,
    qkv_layout: Any,
    o_format: Any,
    qkv_scale_inv_format: Any,
    bias_type: Any,
    attn_mask_type: Any,
    softmax_type: Any,
    window_size: Any,
    bottom_right_diagonal: bool,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_kv: torch.Tensor | None,
    Q: Any,
    K: Any,
    V: Any,
    fake_dtype: Any = None,
    cu_seqlens_q_padded: Any = None,
    cu_seqlens_kv_padded: Any = None,
    page_table_k: Any = None,
    page_table_v: Any = None,
    s_quantizer: Any = None,
    o_quantizer: Any = None,
    Bias: torch.Tensor | None = None,
    SoftmaxOffset: Any = None,
    rng_gen: Any = None,
    rng_elts_per_thread: int = 0,
    return_max_logit: bool = False,
    cuda_graph: bool = False,
) -> list[torch.Tensor]:
    if is_training and p_dropout > 0:
        raise UnsupportedError("attention with dropout is not supported by te_fl")
    if page_table_k is not None or return_max_logit or o_quantizer is not None:
        raise UnsupportedError("paged, FP8 or max-logit attention is not supported by te_fl")
    call = understand(
        qkv_layout,
        bias_type,
        attn_mask_type,
        softmax_type,
        attn_scale,
        window_size,
        bool(bottom_right_diagonal),
        (cu_seqlens_q, cu_seqlens_kv),
        (cu_seqlens_q_padded, cu_seqlens_kv_padded),
        Bias,
        (Q, K, V),
    )
    with torch.no_grad():
        q = to_bhsd(Q, call.q_format)
        k, v = (to_bhsd(x, call.kv_format) for x in (K, V))
        out = _from_bhsd(attend(call, q, k, v), format_of(o_format, call.q_format))
        return [out, *_auxiliary(logsumexp(call, q, k))]


def _auxiliary(statistics: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The statistics, and a state of the random generator in the same storage.

    The backward pass gets both. Statistics in another storage are not those that the forward pass made: under context
    parallelism they are of the keys of all ranks, as the output is.
    """
    count = (statistics.numel() + 3) // 4 * 4
    both = torch.zeros(count + 4, dtype=torch.float32, device=statistics.device)
    kept = both[: statistics.numel()].view(statistics.shape)
    return kept.copy_(statistics), both[count:].view(torch.int64)


def fused_attn_bwd(*args: Any, **kwargs: Any) -> list[torch.Tensor | None]:
    """[dQ, dK, dV, gradient of the bias or None]. The forward pass is computed again."""
    return backward(_attend, _differentiate, args, kwargs)


def backward(
    attend: Attend, differentiate: Differentiate, args: Args, kwargs: Kwargs
) -> list[torch.Tensor | None]:
    """``fused_attn_bwd`` by autograd of ``attend``; for output and statistics of more keys by ``differentiate``."""
    args, kwargs = backward_arguments(args, kwargs)
    return _backward(attend, differentiate, *args, **kwargs)


def _backward(
    attend: Attend,
    differentiate: Differentiate,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    attn_scale: float,
    p_dropout: float,
    set_zero: bool,
    qkv_layout: Any,
    o_format: Any,
    do_format: Any,
    dqkv_layout: Any,
    qkv_scale_inv_format: Any,
    do_scale_inv_format: Any,
    bias_type: Any,
    attn_mask_type: Any,
    softmax_type: Any,
    window_size: Any,
    bottom_right_diagonal: bool,
    deterministic: bool,
    cu_seqlens_q: torch.Tensor | None,
    cu_seqlens_kv: torch.Tensor | None,
    Q: Any,
    K: Any,
    V: Any,
    O: Any,  # noqa: E741 (a name of the interface)
    dO: Any,
    fake_dtype: Any = None,
    Aux_CTX_Tensors: Any = None,
    cu_seqlens_q_padded: Any = None,
    cu_seqlens_kv_padded: Any = None,
    s_quantizer: Any = None,
    dp_quantizer: Any = None,
    dqkv_quantizer: Any = None,
    cuda_graph: bool = False,
) -> list[torch.Tensor | None]:
    if p_dropout > 0 or dqkv_quantizer is not None:
        raise UnsupportedError("dropout or FP8 in attention is not supported by te_fl")
    aux = list(Aux_CTX_Tensors or ())
    call = understand(
        qkv_layout,
        bias_type,
        attn_mask_type,
        softmax_type,
        attn_scale,
        window_size,
        bool(bottom_right_diagonal),
        (cu_seqlens_q, cu_seqlens_kv),
        (cu_seqlens_q_padded, cu_seqlens_kv_padded),
        aux[2] if len(aux) > 2 else None,
        (Q, K, V, dO),
    )
    dout_format = format_of(do_format, format_of(o_format, call.q_format))
    if _of_more_keys(aux):
        with torch.no_grad():
            qkv = (to_bhsd(Q, call.q_format), *(to_bhsd(x, call.kv_format) for x in (K, V)))
            shape = (*qkv[0].shape[:3], qkv[2].shape[3])
            out = to_bhsd(O, format_of(o_format, call.q_format)).reshape(shape)
            dout = to_bhsd(dO, dout_format).reshape(shape)
            dq, dk, dv, dbias = differentiate(call, qkv, out, dout, aux[0].reshape(*shape[:3], 1))
        dq_format, dkv_format = formats_of(dqkv_layout, (call.q_format, call.kv_format))
        return [
            _from_bhsd(dq.to(Q.dtype), dq_format),
            *(_from_bhsd(dx.to(Q.dtype), dkv_format) for dx in (dk, dv)),
            None if dbias is None or call.bias is None else dbias.to(call.bias.dtype),
        ]
    leaves = [x.detach().requires_grad_() for x in (Q, K, V)]
    bias = call.bias
    with torch.enable_grad():
        if bias is not None:
            bias = bias.detach().requires_grad_()
            call = call._replace(bias=bias)
        q = to_bhsd(leaves[0], call.q_format)
        k, v = (to_bhsd(x, call.kv_format) for x in leaves[1:])
        out = attend(call, q, k, v)
        inputs = [*leaves, *([bias] if bias is not None else [])]
        dout = to_bhsd(dO, dout_format).reshape(out.shape).to(out.dtype)
        dq, dk, dv, *rest = torch.autograd.grad(out, inputs, dout)
    dq_format, dkv_format = formats_of(dqkv_layout, (call.q_format, call.kv_format))
    return [
        _from_bhsd(to_bhsd(dq, call.q_format), dq_format),
        *(_from_bhsd(to_bhsd(dx, call.kv_format), dkv_format) for dx in (dk, dv)),
        rest[0] if rest else None,
    ]


def _of_more_keys(aux: list[Any]) -> bool:
    """Whether the statistics are not those that `fused_attn_fwd` returned with the state of the random generator."""
    if len(aux) < 2 or not all(isinstance(one, torch.Tensor) for one in aux[:2]):
        return False
    statistics, state = (one.untyped_storage().data_ptr() for one in aux[:2])
    return bool(statistics != state)
