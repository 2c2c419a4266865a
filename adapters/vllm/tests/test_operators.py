"""The operators of the plan against formulas in float64, token by token."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from flagos_serving.declaration import decline
from vllm_flagos import operators
from vllm_flagos.vllm import triton_missing

pytestmark = pytest.mark.host

BLOCK, KV_HEADS, HEADS, DIM = 16, 2, 4, 8
QUERIES, KEYS = (1, 5, 20), (33, 5, 40)  # a decoding sequence, a new one, a chunk of a longer one


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="flagos")


def cache() -> tuple[Tensor, Tensor, Tensor, list[Tensor], list[Tensor]]:
    """Keys, values and block table of a cache in vLLM's layout, with each sequence's keys and values in a row."""
    packed = random(12, KV_HEADS, BLOCK, 2 * DIM).transpose(1, 2)  # [blocks, block, heads, K | V]
    keys, values = packed.split(DIM, dim=-1)
    order, used, rows = torch.randperm(12).tolist(), 0, []
    for length in KEYS:
        count = -(-length // BLOCK)
        rows.append(order[used : used + count] + [0] * (3 - count))
        used += count
    table = torch.tensor(rows, dtype=torch.int32, device="flagos")
    flat = [
        [x[row].flatten(0, 1)[:length] for row, length in zip(rows, KEYS, strict=True)]
        for x in (keys, values)
    ]
    return keys, values, table, flat[0], flat[1]


def formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool = True,
    window: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    slopes: Any = None,
    by_root: bool = False,
    sinks: Any = None,
) -> Tensor:
    """Attention in float64 by loops over queries and heads."""
    q, k, v = (x.cpu().double() for x in (q, k, v))
    result = torch.zeros_like(q)
    for i in range(len(q)):
        place = len(k) - len(q) + i
        seen = [
            j
            for j in range(len(k))
            if (not causal or j <= place)
            and (window[0] < 0 or j >= place - window[0])
            and (window[1] < 0 or j <= place + window[1])
        ]
        for head in range(HEADS):
            kv = head // (HEADS // KV_HEADS)
            scores = k[seen, kv] @ q[i, head] / math.sqrt(DIM)
            if softcap:
                scores = softcap * torch.tanh(scores / softcap)
            if slopes is not None:
                back = place - torch.tensor(seen)
                scores = scores - slopes[head] * (back.double().sqrt() if by_root else back)
            weights = torch.exp(scores)
            whole = weights.sum() + (0 if sinks is None else math.exp(sinks[head]))
            result[i, head] = (weights / whole) @ v[seen, kv]
    return result


SETTINGS = {
    "causal": {},
    "not causal": {"causal": False},
    "window": {"window": (7, 0)},
    "softcap": {"softcap": 2.0},
    "slopes": {"slopes": (0.5, 0.25, 0.125, 0.1)},
    "slopes of roots": {"slopes": (0.5, 0.25, 0.125, 0.1), "by_root": True},
    "sinks": {"sinks": (0.0, 1.0, -1.0, 2.0)},
    "softcap in a window": {"softcap": 2.0, "window": (3, 0)},
}


def attend(q: Tensor, out: Tensor, **settings: Any) -> tuple[list[Tensor], list[Tensor]]:
    keys, values, table, k, v = cache()
    starts = torch.tensor([0, *QUERIES], device="flagos").cumsum(0).int()
    options = {
        "causal": settings.pop("causal", True),
        "window_size": settings.pop("window", (-1, -1)),
        "softcap": settings.pop("softcap", 0.0),
        "use_alibi_sqrt": settings.pop("by_root", False),
    }
    for name in ("slopes", "sinks"):
        if name in settings:
            given = torch.tensor(settings.pop(name), device="flagos")
            options["alibi_slopes" if name == "slopes" else name] = given
    scales = settings.pop("scales", (None, None, None))
    operators.paged_attention(
        q=q,
        k=keys,
        v=values,
        out=out,
        cu_seqlens_q=starts,
        max_seqlen_q=max(QUERIES),
        seqused_k=torch.tensor(KEYS, dtype=torch.int32, device="flagos"),
        max_seqlen_k=max(KEYS),
        softmax_scale=DIM**-0.5,
        block_table=table,
        q_descale=scales[0],
        k_descale=scales[1],
        v_descale=scales[2],
        seq_threshold_3D=64,
        **options,
        **settings,
    )
    return k, v


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_paged_attention(settings: dict[str, Any]) -> None:
    q = random(sum(QUERIES), HEADS, DIM)
    out = torch.full_like(q, torch.nan)
    k, v = attend(q, out, **settings)
    expected = torch.cat(
        [formula(*parts, **settings) for parts in zip(q.split(QUERIES), k, v, strict=True)]
    )
    torch.testing.assert_close(out.cpu().double(), expected, atol=1e-5, rtol=1e-5)
    plain = torch.cat([formula(*parts) for parts in zip(q.split(QUERIES), k, v, strict=True)])
    assert not settings or (plain - expected).abs().max() > 1e-2  # the setting changes the result


def test_queries_of_eight_bits_are_times_their_scale() -> None:
    q = random(sum(QUERIES), HEADS, DIM).to(torch.float8_e4m3fn)
    out = torch.full(q.shape, torch.nan, device="flagos")
    k, v = attend(q, out, scales=(torch.tensor(0.5, device="flagos"), None, None))
    whole = (q.float() * 0.5).split(QUERIES)
    expected = torch.cat([formula(*parts) for parts in zip(whole, k, v, strict=True)])
    torch.testing.assert_close(out.cpu().double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"mm_prefix_range": torch.zeros(1)}, "mm_prefix_range"),
        ({"chunk_lookback": 1}, "chunked attention"),
        ({"output_scale": torch.ones(1)}, "output_scale"),
    ],
)
def test_what_the_reference_does_not_know_is_named(given: dict[str, Any], named: str) -> None:
    q = random(sum(QUERIES), HEADS, DIM)
    out = torch.zeros_like(q)
    with pytest.raises(flagos.UnsupportedError, match=named):
        attend(q, out, **given)
    assert not out.any()


@pytest.mark.parametrize("is_causal", [True, False])
def test_prefill_attention(is_causal: bool) -> None:
    q, k, v = random(9, HEADS, DIM), random(9, KV_HEADS, DIM), random(9, KV_HEADS, DIM)
    out = torch.zeros_like(q)
    starts, lengths = (torch.tensor(x, device="flagos") for x in ([0, 3], [3, 6]))
    operators.prefill_attention(
        q=q,
        k=k,
        v=v,
        o=out,
        b_start_loc=starts,
        b_seq_len=lengths,
        max_input_len=6,
        is_causal=is_causal,
    )
    parts = (slice(0, 3), slice(3, 9))
    expected = torch.cat([formula(q[p], k[p], v[p], causal=is_causal) for p in parts])
    torch.testing.assert_close(out.cpu().double(), expected, atol=1e-5, rtol=1e-5)


def turned(x: Tensor, angles: Tensor, by_halves: bool) -> Tensor:
    """Each pair of a head as a complex number, in float64, times one of the angle; what has none stays."""
    made, pairs = x.cpu().double(), angles.shape[-1]
    for pair in range(pairs):
        at = (pair, pair + pairs) if by_halves else (2 * pair, 2 * pair + 1)
        numbers = torch.complex(*(made[..., n].clone() for n in at))
        numbers = numbers * torch.polar(torch.ones_like(angles[..., pair]), angles[..., pair])
        made[..., at[0]], made[..., at[1]] = numbers.real, numbers.imag
    return made


@pytest.mark.parametrize("by_halves", [True, False])
@pytest.mark.parametrize("pairs", [4, 3])
def test_rotate(by_halves: bool, pairs: int) -> None:
    x, angles = random(2, 5, HEADS, DIM), torch.randn(5, pairs, dtype=torch.float64)
    cos, sin = (f(angles).float().to("flagos") for f in (torch.cos, torch.sin))
    found = operators.rotate(x, cos, sin, not by_halves)
    expected = turned(x, angles[None, :, None], by_halves)
    torch.testing.assert_close(found.cpu().double(), expected, atol=1e-6, rtol=1e-5)
    compiled = torch.ops.vllm_flagos.rotate(x, cos, sin, not by_halves)
    assert torch.equal(compiled.cpu(), found.cpu())


@pytest.mark.parametrize("by_halves", [True, False])
@pytest.mark.parametrize(
    ("sections", "interleaved", "axes"),
    [
        ([2, 1, 1], False, [0, 0, 1, 2]),
        ([2, 1, 1], True, [0, 1, 2, 0]),
        ([3, 1, 0], True, [0, 1, 0, 0]),
        ([1, 1, 1], False, [0, 1, 2]),
    ],
)
def test_rotate_in_three_axes(
    sections: list[int], interleaved: bool, axes: list[int], by_halves: bool
) -> None:
    query, key = random(5, HEADS * DIM), random(5, KV_HEADS * DIM)
    before = [x.clone().unflatten(1, (-1, DIM)) for x in (query, key)]
    angles = torch.randn(3, 5, len(axes), dtype=torch.float64)
    cos, sin = (f(angles).float().to("flagos") for f in (torch.cos, torch.sin))
    torch.ops.vllm_flagos.rotate_in_three_axes(
        query, key, cos, sin, sections, DIM, 2 * len(axes), interleaved, by_halves
    )
    chosen = torch.stack([angles[axis, :, pair] for pair, axis in enumerate(axes)], dim=-1)
    for x, given in zip((query, key), before, strict=True):
        expected = turned(given, chosen[:, None], by_halves).flatten(1)
        torch.testing.assert_close(x.cpu().double(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("norm_before_gate", [True, False])
@pytest.mark.parametrize(
    ("group", "activation"), [(None, "silu"), (4, "swish"), (4, "sigmoid"), (None, None)]
)
def test_gated_rms_norm(norm_before_gate: bool, group: int | None, activation: str | None) -> None:
    x, weight = random(3, 2, DIM), random(DIM)
    gate = None if activation is None else random(3, 2, DIM)
    found = torch.ops.vllm_flagos.gated_rms_norm(
        x, gate, weight, 1e-5, group, norm_before_gate, activation or "silu"
    )
    wide = x.cpu().double()
    gates = torch.ones_like(wide)
    if gate is not None:
        gates = torch.sigmoid(gate.cpu().double())
        gates = gates if activation == "sigmoid" else gates * gate.cpu().double()
    made = wide if norm_before_gate else wide * gates
    for part in made.split(group or DIM, dim=-1):
        part /= (part.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    made *= weight.cpu().double() * (gates if norm_before_gate else 1)
    torch.testing.assert_close(found.cpu().double(), made, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn])
def test_reshape_and_cache(dtype: torch.dtype) -> None:
    key, value = random(5, KV_HEADS, DIM), random(5, KV_HEADS, DIM)
    packed = torch.zeros(3, KV_HEADS, BLOCK, 2 * DIM, device="flagos", dtype=dtype).transpose(1, 2)
    keys, values = packed.split(DIM, dim=-1)
    slots = torch.tensor([0, 17, -1, 47, 5], device="flagos")
    scales = torch.tensor(0.5, device="flagos"), torch.tensor(2.0, device="flagos")
    operators.reshape_and_cache(key, value, keys, values, slots, "auto", *scales)
    for x, stored, scale in ((key, keys, scales[0]), (value, values, scales[1])):
        given = x if dtype == torch.float32 else (x / scale).to(dtype).float()
        for token, slot in enumerate(slots.tolist()):
            if slot >= 0:
                found = stored[slot // BLOCK, slot % BLOCK].float()
                assert torch.equal(found, given[token]), token
        assert int(stored.float().ne(0).any(-1).any(-1).sum()) == 4  # and nothing else was written


def test_slot_mapping() -> None:
    positions = torch.tensor([30, 31, 32, 0, 7], device="flagos")
    table = torch.tensor([[3, 1, 4], [5, 0, 0]], dtype=torch.int32, device="flagos")
    starts = torch.tensor([0, 3, 5], dtype=torch.int32, device="flagos")
    slots = torch.full((8,), 99, device="flagos")
    settings = {"BLOCKS_PER_KV_BLOCK": 1, "TOTAL_CP_WORLD_SIZE": 1, "PAD_ID": -1}
    operators.slot_mapping(
        (3,), 5, 8, starts, positions, table, 3, 16, slots, KV_CACHE_BLOCK_SIZE=16, **settings
    )
    assert slots.tolist() == [1 * 16 + 14, 1 * 16 + 15, 4 * 16, 5 * 16, 5 * 16 + 7, -1, -1, -1]


def test_a_slot_mapping_of_divided_blocks() -> None:
    """A block of the cache is two of the kernel's."""
    positions = torch.tensor([0, 17, 31, 33], device="flagos")
    table = torch.tensor([[2, 3, 8, 9]], dtype=torch.int32, device="flagos")
    starts = torch.tensor([0, 4], dtype=torch.int32, device="flagos")
    slots = torch.zeros(4, dtype=torch.int64, device="flagos")
    settings = {"BLOCKS_PER_KV_BLOCK": 2, "TOTAL_CP_WORLD_SIZE": 1, "PAD_ID": -1}
    operators.slot_mapping(
        (2,), 4, 4, starts, positions, table, 4, 16, slots, KV_CACHE_BLOCK_SIZE=32, **settings
    )
    assert slots.tolist() == [2 * 16, 3 * 16 + 1, 3 * 16 + 15, 8 * 16 + 1]


def test_a_slot_mapping_without_a_size_of_attentions_blocks() -> None:
    """As vLLM 0.33 launches it."""
    positions = torch.tensor([30, 32], device="flagos")
    table = torch.tensor([[3, 1, 4]], dtype=torch.int32, device="flagos")
    starts = torch.tensor([0, 2], dtype=torch.int32, device="flagos")
    slots = torch.zeros(3, dtype=torch.int64, device="flagos")
    settings = {"KV_CACHE_BLOCK_SIZE": 16, "TOTAL_CP_WORLD_SIZE": 1, "PAD_ID": -1}
    operators.slot_mapping((2,), 2, 3, starts, positions, table, 3, slots, **settings)
    assert slots.tolist() == [1 * 16 + 14, 4 * 16, -1]


@pytest.mark.parametrize("activation", ["silu", "gelu", "swigluoai", "swiglustep", "relu2_no_mul"])
@pytest.mark.parametrize("mapped", [False, True])
def test_fused_experts(activation: str, mapped: bool) -> None:
    tokens, hidden, middle, experts, k = 6, 8, 4, 3, 2
    wide = middle if activation.endswith("no_mul") else 2 * middle
    x, w13, w2 = (
        random(tokens, hidden),
        random(experts, wide, hidden),
        random(experts, hidden, middle),
    )
    weights = torch.rand(tokens, k, device="flagos")
    everyone = 5 if mapped else experts
    chosen = torch.stack([torch.randperm(everyone)[:k] for _ in range(tokens)]).int().to("flagos")
    chosen[0, 0] = -1  # none, as the places of a graph have that no token fills
    places = [2, -1, 0, -1, 1] if mapped else list(range(experts))
    expert_map = torch.tensor(places, dtype=torch.int32, device="flagos") if mapped else None
    found = operators.fused_experts(
        x, w13, w2, weights, chosen, activation, all_experts=everyone, expert_map=expert_map
    )
    expected = torch.zeros(tokens, hidden, dtype=torch.float64)
    for token in range(tokens):
        for share, number in zip(weights[token].tolist(), chosen[token].tolist(), strict=True):
            if number < 0 or places[number] < 0:
                continue
            inner = w13[places[number]].cpu().double() @ x[token].cpu().double()
            expected[token] += share * (
                w2[places[number]].cpu().double() @ activated(inner, activation)
            )
    torch.testing.assert_close(found.cpu().double(), expected, atol=1e-5, rtol=1e-5)


def activated(x: Tensor, activation: str) -> Tensor:
    if activation == "relu2_no_mul":
        return x.clamp(min=0) ** 2
    if activation == "swiglustep":
        gate, value = x.chunk(2, -1)
        return (gate * torch.sigmoid(gate)).clamp(max=7) * value.clamp(-7, 7)
    if activation == "swigluoai":
        gate, value = x[::2].clamp(max=7), x[1::2].clamp(-7, 7)
        return gate / (1 + torch.exp(-1.702 * gate)) * (value + 1)
    gate, value = x.chunk(2)
    if activation == "silu":
        return gate / (1 + torch.exp(-gate)) * value
    return 0.5 * gate * (1 + torch.erf(gate / math.sqrt(2))) * value


def test_a_limit_of_gates() -> None:
    x, w13, w2 = random(3, 8) * 4, random(1, 8, 8), random(1, 8, 4)
    one = torch.ones(3, 1, device="flagos"), torch.zeros(3, 1, dtype=torch.int32, device="flagos")
    found = operators.fused_experts(x, w13, w2, *one, "silu", limit=0.5)
    gate, value = (x.cpu().double() @ w13[0].cpu().double().t()).chunk(2, -1)
    gate, value = gate.clamp(max=0.5), value.clamp(-0.5, 0.5)
    expected = (gate / (1 + torch.exp(-gate)) * value) @ w2[0].cpu().double().t()
    torch.testing.assert_close(found.cpu().double(), expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(flagos.UnsupportedError, match="a limit is silu's, not one of 'gelu'"):
        operators.fused_experts(x, w13, w2, *one, "gelu", limit=0.5)


def test_an_activation_that_no_kernel_knows() -> None:
    x = random(1, 8)
    with pytest.raises(flagos.UnsupportedError, match="no_such"):
        operators.fused_experts(
            x, random(1, 8, 8), random(1, 8, 4), torch.ones(1, 1, device="flagos"),
            torch.zeros(1, 1, dtype=torch.int32, device="flagos"), "no_such",
        )  # fmt: skip


UNSORTED = (None,) * 6


@pytest.mark.parametrize("shape", [(2, 4, 8), (2, 1, 4, 8)])
def test_adapters(shape: tuple[int, ...]) -> None:
    """A token without an adapter gets nothing, not the last adapter's product."""
    x, a = random(5, 8), [random(*shape) for _ in range(2)]
    adapters = torch.tensor([0, -1, 1, 1, -1], device="flagos")
    low = torch.full((2, 5, 4), torch.nan, device="flagos")
    operators.lora_shrink(x, a, low, adapters, *UNSORTED, 0.5)
    b = [random(2, width, 4) for width in (4, 2)]
    y = random(5, 10)
    before = y.clone()
    operators.lora_expand(low, b, y, adapters, *UNSORTED, 3, True)
    for token, slot in enumerate(adapters.tolist()):
        change = torch.zeros(6)
        if slot >= 0:
            given = [w.view(2, 4, 8)[slot].cpu() @ x[token].cpu() * 0.5 for w in a]
            change = torch.cat([w[slot].cpu() @ v for w, v in zip(b, given, strict=True)])
        torch.testing.assert_close((y - before)[token, 3:9].cpu(), change, atol=1e-5, rtol=1e-5)
    assert torch.equal(y[:, :3], before[:, :3]) and torch.equal(y[:, 9:], before[:, 9:])
    operators.lora_expand(low, b, y, adapters, *UNSORTED, 3, False)
    assert not y[1, 3:9].any() and not y[4, 3:9].any()


def test_a_batch_without_adapters_does_not_read_those_of_the_batch_before() -> None:
    y, none = torch.zeros(3, 4, device="flagos"), torch.tensor([True])
    stale = torch.zeros(3, dtype=torch.int32, device="flagos")
    sorted_by = (None, None, None, None, none, None)
    operators.lora_expand(random(1, 3, 2), [random(1, 4, 2)], y, stale, *sorted_by, 0, True)
    assert not y.any()


def speculated(drafts: list[list[int]]) -> tuple[Tensor, Tensor, Tensor]:
    """Output, ends and flat drafts of some requests."""
    most = max(map(len, drafts))
    output = torch.full((len(drafts), most + 1), -1, dtype=torch.int32, device="flagos")
    ends = torch.tensor([len(d) for d in drafts], device="flagos").cumsum(0).int()
    flat = torch.tensor([t for d in drafts for t in d], dtype=torch.int32, device="flagos")
    return output, ends, flat


def test_greedy_drafts() -> None:
    output, ends, flat = speculated([[1, 2, 3], [], [4, 9], [5, 6]])
    best = torch.tensor([1, 7, 3, 4, 8, 5, 6], device="flagos")
    bonus = torch.tensor([[10], [11], [12], [13]], dtype=torch.int32, device="flagos")
    operators.reject_greedily(
        (4,), output, ends, flat, best, bonus, None, 3, None, None, SYNTHETIC_MODE=False
    )
    assert output.tolist() == [[1, 7, -1, -1], [11, -1, -1, -1], [4, 8, -1, -1], [5, 6, 13, -1]]
    output.fill_(-1)
    some = torch.tensor([True, False, False, True], device="flagos")
    operators.reject_greedily(
        (4,), output, ends, flat, best, bonus, some, 3, None, None, SYNTHETIC_MODE=False
    )
    assert output.tolist() == [[1, 7, -1, -1], [-1] * 4, [-1] * 4, [5, 6, 13, -1]]


def test_random_drafts() -> None:
    output, ends, flat = speculated([[1, 2], [0, 3], [-1]])
    target = torch.full((5, 4), 0.1, device="flagos")
    target[0, 1], target[1, 2], target[2, 0], target[3, 3] = 0.9, 0.2, 0.9, 0.9
    uniform = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.0], dtype=torch.float64, device="flagos")
    recovered = torch.tensor([7, 8, 7, 8, 9], dtype=torch.int32, device="flagos")
    bonus = torch.tensor([[10], [11], [12]], dtype=torch.int32, device="flagos")
    greedy = torch.tensor([False, False, False], device="flagos")
    settings = {"NO_DRAFT_PROBS": True, "SYNTHETIC_MODE": False}
    operators.reject_randomly(
        (3,),
        output,
        ends,
        flat,
        None,
        target,
        bonus,
        recovered,
        uniform,
        greedy,
        2,
        4,
        None,
        **settings,
    )
    assert output.tolist() == [[1, 8, -1], [0, 3, 11], [9, -1, -1]]


def test_the_distribution_of_what_speculation_gives() -> None:
    """The first token of each request has the target's distribution, whatever the draft's is."""
    requests, vocabulary = 20000, 4
    draft = torch.tensor([0.7, 0.1, 0.1, 0.1])
    wanted = torch.tensor([0.1, 0.2, 0.3, 0.4])
    drafts = torch.multinomial(draft, requests, replacement=True).int().to("flagos")
    output = torch.full((requests, 2), -1, dtype=torch.int32, device="flagos")
    ends = torch.arange(1, requests + 1, dtype=torch.int32, device="flagos")
    p, q = (x.expand(requests, -1).contiguous().to("flagos") for x in (wanted, draft))
    inverse = torch.empty(requests, vocabulary).exponential_().reciprocal().to("flagos")
    recovered = torch.empty_like(drafts)
    modes = {"NO_DRAFT_PROBS": False}
    operators.recover_tokens(
        (requests, 1), recovered, ends, drafts, q, p, inverse, vocabulary,
        BLOCK_SIZE=8192, USE_FP64_GUMBEL=False, **modes,
    )  # fmt: skip
    operators.reject_randomly(
        (requests,), output, ends, drafts, q, p,
        torch.zeros(requests, 1, dtype=torch.int32, device="flagos"), recovered,
        torch.rand(requests, dtype=torch.float64, device="flagos"),
        torch.zeros(requests, dtype=torch.bool, device="flagos"), 1, vocabulary, None,
        SYNTHETIC_MODE=False, **modes,
    )  # fmt: skip
    found = torch.bincount(output[:, 0].cpu().long(), minlength=vocabulary) / requests
    assert (found - wanted).abs().max() < 0.02
    assert (draft - wanted).abs().max() > 0.5  # the draft itself would not pass


def test_values_for_each_draft() -> None:
    output = torch.empty(5, device="flagos")
    ends = torch.tensor([2, 2, 5], dtype=torch.int32, device="flagos")
    x = torch.tensor([0.0, 3.0, 0.5], device="flagos")
    operators.expand_to_tokens((3,), output, x, ends, 0, 1, MAX_NUM_TOKENS=128)
    assert output.tolist() == [1.0, 1.0, 0.5, 0.5, 0.5]


@pytest.mark.parametrize(("rows", "columns"), [(4, 8), (7, 5)])  # a last block may be smaller
def test_products_of_groups_and_blocks(rows: int, columns: int) -> None:
    """Against products of the numbers that are meant, one by one."""
    block = (3, 4)
    groups, blocks = -(-columns // block[1]), -(-rows // block[0])
    x = torch.randn(5, columns).to(torch.float8_e4m3fn)
    w = torch.randn(rows, columns).to(torch.float8_e4m3fn)
    x_scale, w_scale = torch.rand(5, groups) + 0.1, torch.rand(blocks, groups) + 0.1
    expected = torch.zeros(5, rows, dtype=torch.float64)
    for token in range(5):
        for row in range(rows):
            for column in range(columns):
                group = column // block[1]
                scale = x_scale[token, group].double() * w_scale[row // block[0], group].double()
                expected[token, row] += x[token, column].double() * w[row, column].double() * scale
    given = [t.to("flagos") for t in (x, w, x_scale, w_scale)]
    for multiply in (operators.block_scaled_mm, torch.ops.vllm_flagos.block_scaled_mm):
        found = multiply(*given, list(block), torch.float32)
        torch.testing.assert_close(found.cpu().double(), expected, atol=1e-5, rtol=1e-5)
    given[2] = given[2][:, :1]
    with pytest.raises(ValueError, match="block_scaled_mm: x_scale is"):
        operators.block_scaled_mm(*given, list(block), torch.float32)


def test_the_plan_says_why_the_reference_serves() -> None:
    report = str(flagos.explain("vllm::paged_attention"))
    assert "* reference.paged_attention" in report and str(triton_missing()) in report
    assert "FlashAttention 3 is for CUDA" in report


def test_a_route_and_a_declined_call_are_counted() -> None:
    flagos.reset_counters()
    name, y = "vllm::lora_shrink", torch.zeros(1, 2, 4, device="flagos")
    adapters = torch.zeros(2, dtype=torch.int64, device="flagos")
    arguments = random(2, 8), [random(1, 4, 8)], y, adapters, *UNSORTED, 1.0

    def declines(*args: Any) -> None:
        raise decline("not today")

    operators.lora_shrink.offer(declines, impl_id="test.lora_shrink", kind="flagos", backend="test")
    try:
        operators.lora_shrink(*arguments)
        counted = flagos.counters()[name]
        assert counted["calls"] == 1 and counted["fallbacks"] == 1
        with flagos.strict(), pytest.raises(flagos.UnsupportedError, match="not today"):
            operators.lora_shrink(*arguments)
        with flagos.route({name: "reference"}), flagos.strict():
            operators.lora_shrink(*arguments)
    finally:
        flagos.unregister(name, "test.lora_shrink")
