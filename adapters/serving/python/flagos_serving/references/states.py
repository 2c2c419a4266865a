"""Layers with a state for each sequence: the convolution before them, gated delta rules, and state spaces.

Sequences lie one after the other in the tokens, ``starts`` int32 [sequences + 1]. ``places`` int32 [sequences] has the
row of each in a cache of states; a row of 0 or below is none. Sums and states are in float32 while they are computed.

A gated delta rule has for each head a state S [values, keys]. For each token S decays by exp(g), takes the part of
the value that it does not have yet, β(v - S·k)·kᵀ, and gives S·q. A state space (Mamba 2) has S [dim, state], which
decays by exp(dt·A), takes dt·x·Bᵀ, and gives S·C + D·x. Both have a form by token and one by chunks.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from flagos_serving.declaration import decline, decline_others

_CHUNK = 64


def _activated(x: Tensor, activation: Any) -> Tensor:
    if activation in (None, False):
        return x
    if activation in (True, "silu", "swish"):
        return F.silu(x)
    raise decline(f"the reference of the convolution does not know the activation {activation!r}")


def _places(places: Tensor | None, sequences: int) -> list[int]:
    """The row of each sequence in the cache."""
    if places is None:
        return list(range(1, sequences + 1))
    if places.dim() == 2:
        if places.shape[1] != 1:
            raise decline("the references of layers with states keep one state for a sequence")
        places = places[:, 0]
    return [int(place) for place in places.tolist()]


# ------------------------------------------------------------------------------------- the convolution


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    conv_states: Tensor,
    query_start_loc: Tensor,
    cache_indices: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    activation: Any = "silu",
    **others: Any,
) -> Tensor:
    """Of whole prompts or parts of them: x [channels, tokens]; each sequence's last columns go to its state."""
    decline_others(
        "the reference of the convolution",
        others,
        (*("pad_slot_id", "null_block_id", "metadata", "validate_data", "block_size_to_align"),),
    )
    starts, width = query_start_loc.tolist(), weight.shape[1]
    rows = _places(cache_indices, len(starts) - 1)
    begun = [False] * len(rows) if has_initial_state is None else has_initial_state.tolist()
    out = torch.zeros_like(x)
    for at, row in enumerate(rows):
        begin, end = starts[at], starts[at + 1]
        if begin == end or (cache_indices is not None and row <= 0):
            continue
        state = conv_states[row, :, : width - 1]
        before = state if begun[at] else torch.zeros_like(state)
        given = torch.cat((before.to(x.dtype), x[:, begin:end]), dim=1)
        out[:, begin:end] = _convolved(given, weight, bias, activation)
        state.copy_(given[:, given.shape[1] - width + 1 :])
    return out


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: Any = None,
    conv_state_indices: Tensor | None = None,
    **others: Any,
) -> Tensor:
    """Of one further token for each sequence: x [sequences, channels], or [sequences, channels, tokens]."""
    decline_others(
        "the reference of the convolution",
        {name: value for name, value in others.items() if value != -1},
        ("null_block_id", "validate_data", "pad_slot_id", "max_query_len"),
    )
    width = weight.shape[1]
    wide = x if x.dim() == 3 else x[:, :, None]
    rows = (
        list(range(x.shape[0]))
        if conv_state_indices is None
        else _places(conv_state_indices, x.shape[0])
    )
    out = torch.zeros_like(wide)
    for at, row in enumerate(rows):
        if conv_state_indices is not None and row <= 0:
            continue
        state = conv_state[row, :, : width - 1]
        given = torch.cat((state.to(x.dtype), wide[at]), dim=1)
        out[at] = _convolved(given, weight, bias, activation)
        state.copy_(given[:, given.shape[1] - width + 1 :])
    return out.view(x.shape)


def _convolved(given: Tensor, weight: Tensor, bias: Tensor | None, activation: Any) -> Tensor:
    wide = F.conv1d(
        given.float()[None],
        weight.float()[:, None],
        None if bias is None else bias.float(),
        groups=weight.shape[0],
    )[0]
    return _activated(wide, activation).to(given.dtype)


# ------------------------------------------------------------------------------------ gated delta rules


def gates(a: Tensor, b: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of the decay, and β, in float32."""
    return -a_log.float().exp() * F.softplus(a.float() + dt_bias.float()), b.float().sigmoid()


def _unit(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)


def _heads(x: Tensor, heads: int) -> Tensor:
    """[tokens, heads, keys] of ``heads`` heads of values."""
    return x.float().repeat_interleave(heads // x.shape[1], dim=1)


def delta_rule_by_token(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One sequence: q and k [tokens, heads, keys], v [tokens, heads, values], g and beta [tokens, heads]."""
    made = torch.empty_like(v)
    for t in range(v.shape[0]):
        state = state * g[t].exp()[:, None, None]
        missing = (v[t] - (state @ k[t][..., None])[..., 0]) * beta[t][:, None]
        state = state + missing[..., None] * k[t][:, None, :]
        made[t] = (state @ q[t][..., None])[..., 0]
    return made, state


def delta_rule_by_chunks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    state: Tensor,
    size: int = _CHUNK,
) -> tuple[Tensor, Tensor]:
    """As `delta_rule_by_token`, with products of chunks."""
    made = torch.empty_like(v)
    for begin in range(0, v.shape[0], size):
        part = slice(begin, begin + size)
        qs, ks, vs = (x[part].transpose(0, 1) for x in (q, k, v))
        decays = g[part].t().cumsum(-1)  # [heads, tokens]
        share = beta[part].t()[..., None]
        between = (decays[:, :, None] - decays[:, None, :]).tril().exp().tril()
        ones = torch.eye(ks.shape[1], device=k.device)
        # What each token writes depends on what those before it wrote.
        mixed = ones + (share * (ks @ ks.transpose(1, 2)) * between).tril(-1)
        values = share * (vs - decays.exp()[..., None] * (ks @ state.transpose(1, 2)))
        new = torch.linalg.solve_triangular(mixed, values, upper=False, unitriangular=True)
        outside = decays.exp()[..., None] * (qs @ state.transpose(1, 2))
        made[part] = (outside + ((qs @ ks.transpose(1, 2)) * between) @ new).transpose(0, 1)
        last = decays[:, -1]
        kept = (last[:, None] - decays).exp()[..., None]
        state = state * last.exp()[:, None, None] + new.transpose(1, 2) @ (kept * ks)
    return made, state


def prepare_delta_rule(
    conv_output: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    apply_l2norm: bool = True,
    output_g_exp: bool = False,
) -> tuple[Tensor, ...]:
    """q, k, v of the packed channels [tokens, ...], the decay and β of each head of values."""
    q, k, v = _unpacked(conv_output, num_k_heads, head_k_dim, head_v_dim)
    if apply_l2norm:
        q, k = (_unit(x.float()).to(conv_output.dtype) for x in (q, k))
    g, beta = gates(a, b, A_log, dt_bias)
    return q.contiguous(), k.contiguous(), v.contiguous(), g.exp() if output_g_exp else g, beta


def _unpacked(x: Tensor, heads: int, keys: int, values: int) -> tuple[Tensor, Tensor, Tensor]:
    q, k, v = x.split((heads * keys, heads * keys, x.shape[1] - 2 * heads * keys), dim=1)
    return (
        q.unflatten(1, (heads, keys)),
        k.unflatten(1, (heads, keys)),
        v.unflatten(1, (-1, values)),
    )


def chunk_gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Tensor,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    output_final_state: bool = False,
    cu_seqlens: Tensor | None = None,
    chunk_indices: Tensor | None = None,
    chunk_offsets: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    core_attn_out: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """Of whole prompts or parts of them: q, k, v [1, tokens, heads, dim].

    ``initial_state`` is [sequences, heads, values, keys].
    """
    if cu_seqlens is None or q.shape[0] != 1:
        raise decline("the reference of the gated delta rule takes sequences one after the other")
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    heads, starts = v.shape[2], cu_seqlens.tolist()
    made = torch.zeros_like(v)
    states = torch.zeros(
        len(starts) - 1, heads, v.shape[3], k.shape[3], dtype=torch.float32, device=v.device
    )
    if initial_state is not None:
        states.copy_(initial_state)
    for at in range(len(starts) - 1):
        part = slice(starts[at], starts[at + 1])
        qs, ks = (_heads(x[0, part], heads) for x in (q, k))
        if use_qk_l2norm_in_kernel:
            qs, ks = _unit(qs), _unit(ks)
        values = v[0, part].float()
        given = (qs * scale, ks, values, g[0, part].float(), beta[0, part].float())
        one, states[at] = delta_rule_by_chunks(*given, states[at])
        made[0, part] = one.to(v.dtype)
    if core_attn_out is not None:
        core_attn_out.view(-1)[: made.numel()].copy_(made.view(-1))
    return made, states if output_final_state else None


def gated_delta_rule_update(
    A_log: Tensor,
    a: Tensor,
    b: Tensor,
    dt_bias: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: float = 1.0,
    threshold: float = 20.0,
    scale: float | None = None,
    initial_state: Tensor | None = None,
    inplace_final_state: bool = True,
    cu_seqlens: Tensor | None = None,
    ssm_state_indices: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    use_qk_l2norm_in_kernel: bool = False,
    is_kda: bool = False,
) -> tuple[Tensor, Tensor]:
    """Of further tokens, over the cache of states ``initial_state``, which it changes."""
    if initial_state is None or cu_seqlens is None or not inplace_final_state or is_kda:
        raise decline("the reference of the gated delta rule changes a cache, head by head")
    if num_accepted_tokens is not None:
        raise decline("the reference of the gated delta rule does not know drafts")
    if (beta, threshold) != (1.0, 20.0):
        raise decline("the reference of the gated delta rule knows softplus as it is")
    heads, starts = v.shape[2], cu_seqlens.tolist()
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    made = torch.zeros_like(v)
    g, share = gates(a, b, A_log, dt_bias)
    for at, row in enumerate(_places(ssm_state_indices, len(starts) - 1)[: len(starts) - 1]):
        part = slice(starts[at], starts[at + 1])
        if row <= 0 or part.start == part.stop:
            continue
        qs, ks = (_heads(x[0, part], heads) for x in (q, k))
        if use_qk_l2norm_in_kernel:
            qs, ks = _unit(qs), _unit(ks)
        one, state = delta_rule_by_token(
            qs * scale, ks, v[0, part].float(), g[part], share[part], initial_state[row].float()
        )
        made[0, part] = one.to(v.dtype)
        initial_state[row] = state.to(initial_state.dtype)
    return made, initial_state


def gated_delta_rule_packed_update(
    mixed_qkv: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    scale: float,
    initial_state: Tensor,
    out: Tensor,
    ssm_state_indices: Tensor,
    use_qk_l2norm_in_kernel: bool = False,
) -> tuple[Tensor, Tensor]:
    """Of one further token for each sequence, whose q, k and v are packed.

    Writes ``out`` [sequences, 1, heads, values].
    """
    heads, values, keys = initial_state.shape[1:]
    of_keys = (mixed_qkv.shape[1] - heads * values) // (2 * keys)
    q, k, v = _unpacked(mixed_qkv, of_keys, keys, values)
    made, _ = gated_delta_rule_update(
        A_log,
        a,
        b,
        dt_bias,
        q[None],
        k[None],
        v[None],
        scale=scale,
        initial_state=initial_state,
        cu_seqlens=torch.arange(mixed_qkv.shape[0] + 1),
        ssm_state_indices=ssm_state_indices,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
    )
    out.copy_(made[0].view(out.shape))
    return out, initial_state


# ------------------------------------------------------------------------------------------ state spaces


def _steps(dt: Tensor, bias: Tensor | None, softplus: bool) -> Tensor:
    wide = dt.float() if bias is None else dt.float() + bias.float()
    return F.softplus(wide) if softplus else wide


def state_space_chunks(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    cu_seqlens: Tensor,
    cu_chunk_seqlens: Tensor,
    last_chunk_indices: Tensor,
    seq_idx: Tensor,
    out: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    dt_bias: Tensor | None = None,
    initial_states: Tensor | None = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_intermediate_states: bool = False,
    state_dtype: torch.dtype | None = None,
    final_states_out: Tensor | None = None,
    final_state_indices: Tensor | None = None,
) -> Tensor | None:
    """Mamba 2 of whole prompts or parts of them.

    x is [tokens, heads, dim], dt [tokens, heads], B and C are [tokens, groups, state]. Writes ``out`` in x's shape.
    Returns the state of each sequence, or of each chunk's end: [..., heads, dim, state]; None if the states of
    sequences go to rows of a cache, ``final_states_out`` at ``final_state_indices``.
    """
    heads, steps = x.shape[1], _steps(dt, dt_bias, dt_softplus).clamp(*dt_limit)
    states: list[Tensor] = []
    sequence, state = -1, x.new_zeros(0)
    for (begin, end), of in zip(
        pairwise(cu_chunk_seqlens.tolist()), seq_idx.tolist(), strict=False
    ):
        if of != sequence:
            sequence = of
            state = (
                torch.zeros(heads, x.shape[2], B.shape[2], dtype=torch.float32, device=x.device)
                if initial_states is None
                else initial_states[of].float()
            )
        part = slice(begin, end)
        bs, cs = (_heads(m[part], heads).transpose(0, 1) for m in (B, C))  # [heads, tokens, state]
        given = (x[part].float() * steps[part][..., None]).transpose(0, 1)
        decays = (steps[part] * A.float()).t().cumsum(-1)
        between = (decays[:, :, None] - decays[:, None, :]).tril().exp().tril()
        made = ((cs @ bs.transpose(1, 2)) * between) @ given
        made = made + decays.exp()[..., None] * (cs @ state.transpose(1, 2))
        last = decays[:, -1]
        kept = (last[:, None] - decays).exp()[..., None]
        state = state * last.exp()[:, None, None] + given.transpose(1, 2) @ (kept * bs)
        out[part] = _finished(made.transpose(0, 1), x[part], D, None if z is None else z[part]).to(
            out.dtype
        )
        states.append(state)
    made_states = torch.stack(states).to(C.dtype if state_dtype is None else state_dtype)
    if return_intermediate_states:
        return made_states
    last_states = made_states[last_chunk_indices.long()]
    if final_states_out is None or final_state_indices is None:
        return last_states
    final_states_out[final_state_indices.long()] = last_states.to(final_states_out.dtype)
    return None


def _finished(made: Tensor, x: Tensor, skip: Tensor | None, z: Tensor | None) -> Tensor:
    if skip is not None:
        wide = skip.float()
        made = made + x.float() * (wide[:, None] if wide.dim() == made.dim() - 2 else wide)
    return made if z is None else made * F.silu(z.float())


def state_space_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    dt_bias: Tensor | None = None,
    z: Tensor | None = None,
    dt_softplus: bool = False,
    state_batch_indices: Tensor | None = None,
    dst_state_batch_indices: Tensor | None = None,
    null_block_id: int = 0,
    out: Tensor | None = None,
    num_accepted_tokens: Tensor | None = None,
    cu_seqlens: Tensor | None = None,
    **others: Any,
) -> None:
    """Mamba 1 and 2 of one further token for each sequence: x [sequences, heads, dim], or without heads.

    Writes ``out`` in x's shape.
    """
    decline_others("the reference of the state space", others, ("is_blackwell",))
    if num_accepted_tokens is not None or cu_seqlens is not None:
        raise decline("the reference of the state space does not know drafts")
    if out is None:
        raise decline("the reference of the state space writes into `out`")
    rows = (
        list(range(x.shape[0]))
        if state_batch_indices is None
        else _places(state_batch_indices, x.shape[0])
    )
    into = rows if dst_state_batch_indices is None else _places(dst_state_batch_indices, len(rows))
    heads = x.shape[1]
    steps = _steps(dt, dt_bias, dt_softplus)
    for at, (row, to) in enumerate(zip(rows, into, strict=False)):
        if state_batch_indices is not None and row == null_block_id:
            continue
        step = steps[at][..., None]
        if x.dim() == 3:
            bs, cs = (_heads(m[at : at + 1], heads)[0][:, None, :] for m in (B, C))
        else:
            bs, cs = (m[at].float().reshape(1, -1) for m in (B, C))
        one = state[row].float() * (step * A.float()).exp() + x[at].float()[..., None] * step * bs
        state[to] = one.to(state.dtype)
        made = (one * cs).sum(-1)
        if D is not None:
            made = made + x[at].float() * D.float()
        if z is not None:
            made = made * F.silu(z[at].float())
        out[at] = made.to(out.dtype)


def selective_scan(
    u: Tensor,
    ssm_states: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    query_start_loc: Tensor | None = None,
    cache_indices: Tensor | None = None,
    has_initial_state: Tensor | None = None,
    null_block_id: int = 0,
    block_size: int = 1024,
    **others: Any,
) -> Tensor:
    """Mamba 1 of whole prompts or parts of them: u [channels, tokens], B and C [groups, state, tokens]; u's shape."""
    decline_others("the reference of the selective scan", others)
    if query_start_loc is None:
        raise decline("the reference of the selective scan takes sequences one after the other")
    b, c = (m if m.dim() == 3 else m[None] for m in (B, C))
    starts = query_start_loc.tolist()
    rows = _places(cache_indices, len(starts) - 1)
    begun = [False] * len(rows) if has_initial_state is None else has_initial_state.tolist()
    steps = _steps(delta, None if delta_bias is None else delta_bias[:, None], delta_softplus)
    of_group = u.shape[0] // b.shape[0]
    made = torch.zeros(u.shape, dtype=torch.float32, device=u.device)
    for at, row in enumerate(rows):
        if row == null_block_id:
            continue
        state = ssm_states[row].float() if begun[at] else torch.zeros_like(ssm_states[row].float())
        for t in range(starts[at], starts[at + 1]):
            bs, cs = (m[:, :, t].float().repeat_interleave(of_group, 0) for m in (b, c))
            step = steps[:, t, None]
            state = state * (step * A.float()).exp() + u[:, t, None].float() * step * bs
            made[:, t] = (state * cs).sum(-1)
        ssm_states[row] = state.to(ssm_states.dtype)
    if D is not None:
        made = made + u.float() * D.float()[:, None]
    if z is not None:
        made = made * F.silu(z.float())
    return made.to(u.dtype)
