"""Latent attention: its two forms, held to each other and to a formula in float64."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from vllm_flagos import kernels, operators
from vllm_flagos.operators import flash_attention_3

pytestmark = pytest.mark.host

HEADS, LATENT, ROTARY, NOPE, VALUE, BLOCK = 3, 8, 4, 6, 5, 16
LENGTHS = (1, 16, 37)
SCALE = 0.3


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    kernels.declare()


def starts(lengths: tuple[int, ...]) -> Tensor:
    return torch.tensor([0, *accumulate(lengths)], dtype=torch.int32)


def formula(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> tuple[Tensor, Tensor]:
    """One sequence, in float64, query by query and head by head; with the logarithms of sums [heads, queries]."""
    out = torch.zeros(q.shape[0], q.shape[1], v.shape[2], dtype=torch.float64)
    sums = torch.zeros(q.shape[1], q.shape[0], dtype=torch.float64)
    for query in range(q.shape[0]):
        seen = k.shape[0] - q.shape[0] + query + 1 if causal else k.shape[0]
        for head in range(q.shape[1]):
            scores = (k[:seen, head].double() @ q[query, head].double()) * SCALE
            weights = torch.exp(scores)
            out[query, head] = weights @ v[:seen, head].double() / weights.sum()
            sums[head, query] = weights.sum().log()
    return out, sums


@pytest.fixture
def rows() -> list[Tensor]:
    """Of each sequence: [length, latent + rotary]."""
    return [torch.randn(length, LATENT + ROTARY) for length in LENGTHS]


def cached(rows: list[Tensor]) -> tuple[Tensor, Tensor]:
    """A paged cache [blocks, block size, dim] and its table, by the operator that writes it."""
    cache, used = torch.zeros(9, BLOCK, LATENT + ROTARY, device="flagos"), [8, 3, 1, 6, 2, 5, 7]
    table = torch.zeros(len(rows), 3, dtype=torch.int32)
    for row, all_of in enumerate(rows):
        blocks = [used.pop() for _ in range(-(-len(all_of) // BLOCK))]
        table[row, : len(blocks)] = torch.tensor(blocks)
        slots = [blocks[n // BLOCK] * BLOCK + n % BLOCK for n in range(len(all_of))]
        there = all_of.to("flagos")
        torch.ops._C_cache_ops.concat_and_cache_mla(
            there[:, :LATENT],
            there[:, LATENT:],
            cache,
            torch.tensor(slots, device="flagos"),
            "auto",
            torch.ones(1, device="flagos"),
        )
    return cache, table.to("flagos")


def test_both_forms(rows: list[Tensor]) -> None:
    """The last token of each sequence, in the latent form and with keys and values of each head."""
    of_keys, of_values = torch.randn(HEADS, NOPE, LATENT), torch.randn(HEADS, VALUE, LATENT)
    plain, turned = torch.randn(3, HEADS, NOPE), torch.randn(3, HEADS, ROTARY)
    cache, table = cached(rows)
    q = torch.cat((torch.einsum("bhn,hnl->bhl", plain, of_keys), turned), -1).to("flagos")
    out, sums = (
        torch.zeros(3, HEADS, LATENT, device="flagos"),
        torch.zeros(3, HEADS, device="flagos"),
    )
    paged = cache.unsqueeze(2)
    operators.latent_attention(
        *(q, paged, paged[..., :LATENT], out, sums, table),
        torch.tensor(LENGTHS, dtype=torch.int32, device="flagos"),
        *(torch.empty(3, HEADS, 1, LATENT + 1, device="flagos"), 1, SCALE, BLOCK),
        is_mla=True,
    )
    latent = torch.einsum("bhl,hvl->bhv", out.cpu(), of_values)

    every = torch.cat(rows)
    keys = torch.cat(
        (
            torch.einsum("tl,hnl->thn", every[:, :LATENT], of_keys),
            every[:, None, LATENT:].expand(-1, HEADS, -1),
        ),
        -1,
    )
    values = torch.einsum("tl,hvl->thv", every[:, :LATENT], of_values)
    queries = torch.cat((plain, turned), -1)
    expanded, theirs = operators.expanded_attention_to_merge(
        *(x.to("flagos") for x in (queries, keys, values, starts((1, 1, 1)), starts(LENGTHS))),
        *(1, max(LENGTHS), SCALE, True),
    )
    torch.testing.assert_close(latent, expanded.cpu(), rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(sums.cpu().t(), theirs.cpu(), rtol=1e-4, atol=1e-4)
    for row, (begin, end) in enumerate(zip(starts(LENGTHS)[:-1], starts(LENGTHS)[1:], strict=True)):
        meant, _ = formula(queries[row, None], keys[begin:end], values[begin:end], causal=True)
        torch.testing.assert_close(latent[row, None].double(), meant, rtol=1e-4, atol=1e-4)


def heads(*lengths: int) -> tuple[Tensor, Tensor]:
    return (
        torch.randn(sum(lengths), HEADS, NOPE + ROTARY),
        torch.randn(sum(lengths), HEADS, VALUE),
    )


def test_expanded_where_queries_share_keys() -> None:
    q, (k, v) = heads(4)[0], (x[:, :1] for x in heads(4))
    given = (x.to("flagos") for x in (q, k, v, starts((4,)), starts((4,))))
    found = operators.expanded_attention(*given, 4, 4, SCALE, False)
    meant, _ = formula(q, k.expand(-1, HEADS, -1), v.expand(-1, HEADS, -1), causal=False)
    torch.testing.assert_close(found.cpu().double(), meant, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [True, False])
def test_expanded(causal: bool) -> None:
    queries, keys = (1, 5, 20), (33, 5, 40)
    q, (k, v) = heads(*queries)[0], heads(*keys)
    out, sums = operators.expanded_attention_to_merge(
        *(x.to("flagos") for x in (q, k, v, starts(queries), starts(keys))), 20, 40, SCALE, causal
    )
    alone = operators.expanded_attention(
        *(x.to("flagos") for x in (q, k, v, starts(queries), starts(keys))), 20, 40, SCALE, causal
    )
    assert torch.equal(out, alone)
    for at in range(3):
        mine, theirs = (slice(*map(int, starts(x)[at : at + 2])) for x in (queries, keys))
        meant, logarithms = formula(q[mine], k[theirs], v[theirs], causal)
        torch.testing.assert_close(out[mine].cpu().double(), meant, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(sums[:, mine].cpu().double(), logarithms, rtol=1e-4, atol=1e-4)


def test_a_context_in_parts(rows: list[Tensor]) -> None:
    """New tokens over a cached context, of which the first sequence has none, as over all keys at once."""
    new, context = (4, 6), (0, 21)
    q, (k, v) = heads(*new)[0], heads(*new)
    old_k, old_v = heads(*context)
    given = [x.to("flagos") for x in (q, k, v, starts(new), starts(new))]
    suffix, suffix_sums = operators.expanded_attention_to_merge(*given, 6, 6, SCALE, True)
    given = [x.to("flagos") for x in (q, old_k, old_v, starts(new), starts(context))]
    prefix, prefix_sums = operators.expanded_attention_to_merge(*given, 6, 21, SCALE, False)
    prefix[:4], prefix_sums[:, :4] = float("nan"), float("inf")  # as a kernel may leave them
    operators.mask_empty_context(prefix_sums, prefix, given[3], given[4])
    assert (prefix[:4] == 0).all() and (prefix_sums[:, :4] == float("-inf")).all()
    merged, sums = torch.empty_like(suffix), torch.empty_like(suffix_sums)
    operators.merge_attention(merged, prefix, prefix_sums, suffix, suffix_sums, sums)
    for mine, theirs in ((slice(0, 4), slice(0, 0)), (slice(4, 10), slice(0, 21))):
        keys, values = torch.cat((old_k[theirs], k[mine])), torch.cat((old_v[theirs], v[mine]))
        meant, logarithms = formula(q[mine], keys, values, causal=True)
        torch.testing.assert_close(merged[mine].cpu().double(), meant, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(sums[:, mine].cpu().double(), logarithms, rtol=1e-4, atol=1e-4)
    # vLLM 0.33 puts a further part of a context where the former is.
    operators.merge_attention(prefix, prefix, prefix_sums, suffix, suffix_sums, prefix_sums)
    assert torch.equal(prefix, merged) and torch.equal(prefix_sums, sums)
    only = torch.empty_like(suffix)
    operators.merge_attention(
        only, prefix, prefix_sums, suffix, suffix_sums, prefill_tokens_with_context=0
    )
    torch.testing.assert_close(only, suffix)


def test_rows_of_a_cache(rows: list[Tensor]) -> None:
    cache, table = cached(rows)
    first, taken = (0, 0, 16), (1, 9, 21)
    begin = starts(taken)
    result = torch.zeros(40, LATENT + ROTARY, device="flagos")
    sequences = torch.repeat_interleave(torch.arange(3), torch.tensor(taken)).int()
    torch.ops._C_cache_ops.gather_and_maybe_dequant_cache(
        *(cache, result, table, begin.to("flagos"), sequences.to("flagos"), sum(taken), "auto"),
        torch.ones(1, device="flagos"),
        torch.tensor(first, dtype=torch.int32, device="flagos"),
    )
    for row in range(3):
        meant = rows[row][first[row] : first[row] + taken[row]]
        assert torch.equal(result[begin[row] : begin[row + 1]].cpu(), meant)
    assert (result[sum(taken) :] == 0).all()


HALF, EIGHT = torch.bfloat16, torch.float8_e4m3fn
HEAD_SIZES = [  # of keys, of values, and whether FlashAttention 3 has a kernel for them
    (128, 128, HALF, True),
    (192, 128, HALF, True),
    (256, 256, HALF, True),
    (64, 512, HALF, True),
    (80, 24, HALF, False),
    (192, 96, HALF, False),
    (72, 512, HALF, False),
    (64, 520, HALF, False),
    (264, 264, HALF, False),
    (36, 36, HALF, False),
    (64, 36, HALF, False),
    (64, 64, torch.float32, False),
]


@pytest.mark.parametrize(("size", "of_values", "dtype", "served"), HEAD_SIZES)
def test_sizes_that_flash_attention_3_does_not_have(
    monkeypatch: pytest.MonkeyPatch, size: int, of_values: int, dtype: torch.dtype, served: bool
) -> None:
    """The next implementation serves them: the library itself would raise an error of its own."""
    asked = []

    def library(q: Tensor, k: Tensor, v: Tensor, **given: Any) -> Any:
        asked.append((q.shape[-1], v.shape[-1]))
        return meant

    monkeypatch.setattr(flash_attention_3, "_forward", lambda: library)
    q, k = (torch.randn(7, 2, size).to("flagos", dtype) for _ in range(2))
    v = torch.randn(7, 2, of_values).to("flagos", dtype)
    given = (q, k, v, starts((2, 5)), starts((2, 5)), 5, 5, SCALE, True)
    with flagos.route({"vllm::expanded_attention_to_merge": "reference"}):
        meant = operators.expanded_attention_to_merge(*given)
    for operator in (operators.expanded_attention, operators.expanded_attention_to_merge):
        name = operator.name.removeprefix("vllm::")
        operator.offer(
            getattr(flash_attention_3, name),
            impl_id="test.library",
            kind="flagos",
            backend="test",
        )
        try:
            found = operator(*given)
        finally:
            flagos.unregister(operator.name, "test.library")
        out = found[0] if isinstance(found, tuple) else found
        assert torch.equal(out.cpu(), meant[0].cpu())
    assert asked == [(size, of_values)] * (2 if served else 0)


@pytest.mark.parametrize(
    ("size", "of_values", "dtype", "served"),
    [
        (64, 64, EIGHT, True),
        (72, 72, EIGHT, False),
        (192, 128, EIGHT, True),
        (64, 128, EIGHT, False),
        (64, 512, EIGHT, False),
        (64, 512, HALF, True),
        (512, 512, HALF, False),
    ],
)
def test_sizes_of_a_paged_cache_that_flash_attention_3_does_not_have(
    monkeypatch: pytest.MonkeyPatch, size: int, of_values: int, dtype: torch.dtype, served: bool
) -> None:
    asked = []
    monkeypatch.setattr(flash_attention_3, "_forward", lambda: lambda **given: asked.append(given))
    k, v = (torch.zeros(4, BLOCK, 2, width).to(dtype) for width in (size, of_values))
    one, lengths = torch.ones(1, 2), torch.tensor([1], dtype=torch.int32)
    given = (torch.zeros(1, 2, size).to(dtype), k, v, torch.zeros(1, 2, of_values))
    more = (starts((1,)), 1, lengths, 1, SCALE, True, (-1, -1), lengths[None], 0.0, one, one, one)
    if served:
        flash_attention_3.paged_attention(*given, *more)
    else:
        with pytest.raises(flagos.UnsupportedError, match=f"{size}.* {of_values}"):
            flash_attention_3.paged_attention(*given, *more)
    assert len(asked) == served
