"""Layers with states: the form by chunks and the form by token, held to each other and to a convolution by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from flagos_serving.references import states as references
from vllm_flagos import operators
from vllm_flagos.operators import states

pytestmark = pytest.mark.host
LENGTHS = (1, 70, 5, 130)  # a token, more than a chunk, less, more than two
STARTS = torch.tensor((0, *torch.tensor(LENGTHS).cumsum(0).tolist()), dtype=torch.int32)
TOKENS = sum(LENGTHS)
ROWS = [3, 1, 7, 5]


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, device="flagos")


def places() -> Tensor:
    return torch.tensor(ROWS, dtype=torch.int32, device="flagos")


def apart(ours: Tensor, theirs: Tensor) -> float:
    return float((ours.cpu().double() - theirs.cpu().double()).abs().max())


def delta_rule() -> dict[str, Tensor]:
    """Two heads of keys and four of values, with decays from nothing to nearly all."""
    return {
        "a": random(TOKENS, 4) * 2,
        "b": random(TOKENS, 4),
        "A_log": random(4),
        "dt_bias": random(4),
        "q": random(1, TOKENS, 2, 8),
        "k": random(1, TOKENS, 2, 8),
        "v": random(1, TOKENS, 4, 6),
    }


def test_a_delta_rule_by_chunks_is_the_one_by_token() -> None:
    given = delta_rule()
    g, beta = references.gates(given["a"], given["b"], given["A_log"], given["dt_bias"])
    begun = random(4, 4, 6, 8)
    made, states = operators.chunk_gated_delta_rule(
        q=given["q"],
        k=given["k"],
        v=given["v"],
        g=g[None],
        beta=beta[None],
        initial_state=begun,
        output_final_state=True,
        cu_seqlens=STARTS,
        use_qk_l2norm_in_kernel=True,
    )
    cache = random(9, 4, 6, 8)
    cache[places().long()] = begun
    others = cache[[2, 4, 6, 8]].clone()
    by_token, _ = operators.gated_delta_rule_update(
        **given,
        initial_state=cache,
        cu_seqlens=STARTS,
        ssm_state_indices=places(),
        use_qk_l2norm_in_kernel=True,
    )
    assert apart(made, by_token) < 1e-4
    assert apart(states, cache[places().long()]) < 1e-4
    assert apart(others, cache[[2, 4, 6, 8]]) == 0.0
    # In other sizes of chunks, and in float64 by the definition.
    q, k = (references._unit(given[name][0].cpu().double()) for name in ("q", "k"))
    q, k, v = q.repeat_interleave(2, 1) * 8**-0.5, k.repeat_interleave(2, 1), given["v"][0].cpu()
    state, part = begun[1].cpu().double(), slice(1, 71)
    wanted = []
    for t in range(part.start, part.stop):
        state = state * g[t].cpu().double().exp()[:, None, None]
        error = v[t].double() - torch.einsum("hvk,hk->hv", state, k[t])
        state = state + torch.einsum("h,hv,hk->hvk", beta[t].cpu().double(), error, k[t])
        wanted.append(torch.einsum("hvk,hk->hv", state, q[t]))
    assert apart(made[0, part], torch.stack(wanted)) < 1e-4


@pytest.mark.parametrize("size", [1, 7, 64, 500])
def test_the_size_of_chunks_does_not_matter(size: int) -> None:
    q, k, v = random(90, 2, 8), references._unit(random(90, 2, 8)), random(90, 2, 6)
    g, beta, state = -random(90, 2).abs(), random(90, 2).sigmoid(), random(2, 6, 8)
    made, last = references.delta_rule_by_chunks(q, k, v, g, beta, state, size)
    wanted, wanted_last = references.delta_rule_by_token(q, k, v, g, beta, state)
    assert apart(made, wanted) < 1e-4 and apart(last, wanted_last) < 1e-4


def test_strong_decays_are_no_infinities() -> None:
    q, k, v = random(80, 2, 8), references._unit(random(80, 2, 8)), random(80, 2, 6)
    g, beta = torch.full((80, 2), -60.0, device="flagos"), random(80, 2).sigmoid()
    made, last = references.delta_rule_by_chunks(q, k, v, g, beta, random(2, 6, 8))
    assert made.isfinite().all() and last.isfinite().all()


def test_packed_tokens_are_the_same() -> None:
    given = delta_rule()
    first = {name: x[0, :4] if x.dim() == 4 else x for name, x in given.items()}
    packed = torch.cat([first[name].flatten(1) for name in ("q", "k", "v")], dim=1)
    caches = [random(9, 4, 6, 8)]
    caches.append(caches[0].clone())
    rows, out = places(), random(4, 1, 4, 6)
    rows[2] = 0  # fills the batch up
    gating = {"A_log": given["A_log"], "dt_bias": given["dt_bias"]}
    gating |= {"a": given["a"][:4], "b": given["b"][:4]}
    operators.gated_delta_rule_packed_update(
        mixed_qkv=packed,
        scale=8**-0.5,
        initial_state=caches[0],
        out=out,
        ssm_state_indices=rows,
        use_qk_l2norm_in_kernel=True,
        **gating,
    )
    wanted, _ = operators.gated_delta_rule_update(
        **gating,
        **{name: first[name][None] for name in ("q", "k", "v")},
        initial_state=caches[1],
        cu_seqlens=torch.arange(5),
        ssm_state_indices=rows,
        use_qk_l2norm_in_kernel=True,
    )
    assert apart(out[:, 0], wanted[0]) == 0.0 and apart(*caches) == 0.0
    assert float(out[2].abs().max()) == 0.0
    q, k, v, g, beta = operators.prepare_delta_rule(
        packed, given["a"][:4], given["b"][:4], given["A_log"], given["dt_bias"], 2, 8, 6, False
    )
    assert apart(q, first["q"]) == apart(k, first["k"]) == apart(v, first["v"]) == 0.0
    assert (g <= 0).all() and ((beta > 0) & (beta < 1)).all()


@pytest.mark.parametrize(
    ("keys", "values", "served"),
    [(8, 8, True), (24, 32, True), (32, 17, True), (8, 6, True), (32, 16, False), (16, 24, False)],
)
def test_sizes_that_vllms_kernel_does_not_have(
    monkeypatch: pytest.MonkeyPatch, keys: int, values: int, served: bool
) -> None:
    """The reference serves them: Triton would raise an error of its compiler."""
    asked = []

    def kernel(*given: Any) -> tuple[Tensor, ...]:
        asked.append(given[-2:])
        return references.prepare_delta_rule(*given)

    monkeypatch.setattr(states, "_prepare", kernel)
    given = {
        "conv_output": random(5, 2 * 2 * keys + 4 * values),
        "a": random(5, 4),
        "b": random(5, 4),
        "A_log": random(4),
        "dt_bias": random(4),
        "num_k_heads": 2,
        "head_k_dim": keys,
        "head_v_dim": values,
    }
    operator = operators.prepare_delta_rule
    operator.offer(states._prepare_delta_rule, impl_id="test.triton", kind="flagos", backend="test")
    try:
        found = operator(**given)
    finally:
        flagos.unregister(operator.name, "test.triton")
    for one, other in zip(found, references.prepare_delta_rule(**given), strict=True):
        assert apart(one, other) == 0.0
    assert asked == [(keys, values)] * served


def test_a_convolution_goes_on_where_it_was() -> None:
    weight, bias, x = random(6, 4), random(6), random(6, 40)
    state = random(9, 3, 6).transpose(1, 2)  # [rows, channels, width - 1]
    options = {"activation": "silu", "cache_indices": torch.tensor([2], device="flagos")}
    whole = torch.nn.functional.pad(x.cpu().double(), (3, 0))
    wanted = torch.stack(
        [
            bias.cpu().double() + (whole[:, t : t + 4] * weight.cpu().double()).sum(1)
            for t in range(40)
        ],
        dim=1,
    )
    wanted = torch.nn.functional.silu(wanted)
    made = []
    for begin, end, begun in ((0, 2, False), (2, 39, True)):
        made.append(
            operators.causal_conv1d(
                x[:, begin:end],
                weight,
                bias,
                conv_states=state,
                query_start_loc=torch.tensor([0, end - begin]),
                has_initial_state=torch.tensor([begun]),
                **options,
            )
        )
    made.append(
        operators.causal_conv1d_update(
            x[:, 39][None], state, weight, bias, "silu", conv_state_indices=options["cache_indices"]
        ).t()
    )
    assert apart(torch.cat(made, dim=1), wanted) < 1e-5
    assert apart(state[2], x[:, 37:]) == 0.0


def test_a_state_space_by_chunks_is_the_one_by_token() -> None:
    x, dt = random(TOKENS, 4, 6), random(TOKENS, 4)
    b, c = random(TOKENS, 2, 8), random(TOKENS, 2, 8)
    a, skip, bias, begun = -random(4).abs(), random(4), random(4), random(4, 4, 6, 8)
    ends, of = [0], []
    for sequence, length in enumerate(LENGTHS):
        for begin in range(0, length, 32):
            ends.append(ends[-1] + min(32, length - begin))
            of.append(sequence)
    last = [max(n for n, one in enumerate(of) if one == sequence) for sequence in range(4)]
    out = torch.empty_like(x)
    given = (x, dt, a, b, c)
    options = {
        "chunk_size": 32,
        "cu_seqlens": STARTS,
        "cu_chunk_seqlens": torch.tensor(ends),
        "last_chunk_indices": torch.tensor(last),
        "seq_idx": torch.tensor(of),
        "out": out,
        "D": skip,
        "dt_bias": bias,
        "initial_states": begun,
        "dt_softplus": True,
        "state_dtype": torch.float32,
    }
    states = operators.state_space_chunks(*given, **options)
    cache = random(9, 4, 6, 8)
    cache[places().long()] = begun
    wide = {"A": a[:, None, None].expand(4, 6, 8), "dt_bias": bias[:, None].expand(4, 6)}
    wanted = torch.empty_like(x)
    for sequence, row in enumerate(ROWS):
        for t in range(int(STARTS[sequence]), int(STARTS[sequence + 1])):
            operators.state_space_update(
                cache,
                x[t : t + 1],
                dt[t : t + 1, :, None].expand(1, 4, 6),
                B=b[t : t + 1],
                C=c[t : t + 1],
                D=skip[:, None].expand(4, 6),
                dt_softplus=True,
                state_batch_indices=torch.tensor([row]),
                out=wanted[t : t + 1],
                **wide,
            )
    assert apart(out, wanted) < 1e-4
    assert apart(states, cache[places().long()]) < 1e-4
    # vLLM 0.33 has the states written where they belong.
    written = torch.zeros_like(cache)
    nothing = operators.state_space_chunks(
        *given, **options, final_states_out=written, final_state_indices=places()
    )
    assert nothing is None and torch.equal(written[places().long()], states)


def test_a_selective_scan_is_its_steps() -> None:
    u, delta, z = random(6, 20), random(6, 20), random(6, 20)
    b, c, a = random(1, 8, 20), random(1, 8, 20), -random(6, 8).abs()
    skip, bias, cache = random(6), random(6), random(4, 6, 8)
    stepped = cache.clone()
    given: dict[str, Any] = {"query_start_loc": torch.tensor([0, 8, 20])}
    given |= {
        "cache_indices": torch.tensor([2, 1]),
        "has_initial_state": torch.tensor([True, False]),
    }
    made = operators.selective_scan(
        u, cache, delta, a, b, c, skip, z, bias, delta_softplus=True, **given
    )
    stepped[1] = 0
    wanted = torch.empty(20, 6, device="flagos")
    for t in range(20):
        operators.state_space_update(
            stepped,
            u[:, t][None],
            delta[:, t][None],
            a,
            b[:, :, t],
            c[:, :, t],
            skip,
            bias,
            z=z[:, t][None],
            dt_softplus=True,
            state_batch_indices=torch.tensor([2 if t < 8 else 1]),
            out=wanted[t : t + 1],
        )
    assert apart(made, wanted.t()) < 1e-5
    assert apart(cache[[1, 2]], stepped[[1, 2]]) < 1e-5


DECLINED: dict[str, tuple[Any, dict[str, Any], str]] = {
    "drafts": (
        operators.causal_conv1d_update,
        {"conv_state_indices": torch.tensor([1]), "num_accepted_tokens": torch.tensor([1])},
        "does not know num_accepted_tokens",
    ),
    "states of a prefix": (
        operators.causal_conv1d_update,
        {"conv_state_indices": torch.tensor([[1, 2]])},
        "one state for a sequence",
    ),
    "an activation": (
        operators.causal_conv1d_update,
        {"activation": "gelu"},
        "the activation 'gelu'",
    ),
}


@pytest.mark.parametrize(("operator", "options", "words"), DECLINED.values(), ids=DECLINED)
def test_what_the_references_decline(operator: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(flagos.UnsupportedError, match=words):
        operator(random(1, 6), random(4, 6, 3), random(6, 4), **options)
