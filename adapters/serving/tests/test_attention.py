"""Attention over places of tokens, in the forms of SGLang's Triton kernels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from flagos_serving.references import attention

HEADS, KV_HEADS, SIZE, VALUES = 4, 2, 8, 6
BEFORE, NEW = (5, 0, 11), (3, 4, 1)  # of three sequences


@pytest.fixture
def pool() -> dict[str, Any]:
    """Keys and values of all sequences, and where those before the new ones are."""
    torch.manual_seed(0)
    bounds = torch.tensor([0, *BEFORE]).cumsum(0).int()
    starts = torch.tensor([0, *NEW]).cumsum(0)
    tokens = int(starts[-1])
    return {
        "keys": torch.randn(40, KV_HEADS, SIZE),
        "values": torch.randn(40, KV_HEADS, VALUES),
        "places": torch.randperm(40)[: int(bounds[-1])],
        "bounds": bounds,
        "starts": starts,
        "q": torch.randn(tokens, HEADS, SIZE),
        "k": torch.randn(tokens, KV_HEADS, SIZE),
        "v": torch.randn(tokens, KV_HEADS, VALUES),
    }


def exact(
    q: Tensor, keys: Tensor, values: Tensor, *, scale: float, window: int = -1, cap: float = 0.0
) -> Tensor:
    """One query [heads, size] at the end of these keys, by the formula in float64."""
    rows = []
    for head in range(HEADS):
        of = head * KV_HEADS // HEADS
        seen = slice(max(0, len(keys) - 1 - window) if window >= 0 else 0, None)
        scores = keys[seen, of].double() @ q[head].double() * scale
        scores = cap * torch.tanh(scores / cap) if cap else scores
        rows.append(torch.softmax(scores, 0) @ values[seen, of].double())
    return torch.stack(rows)


def extend(pool: dict[str, Any], **options: Any) -> Tensor:
    out = torch.full((len(pool["q"]), HEADS, VALUES), torch.nan, device="flagos")
    there = {name: x.to("flagos") for name, x in pool.items()}
    attention.extend_attention(
        *(there["q"], there["k"], there["v"], out, there["keys"], there["values"]),
        *(there["starts"], there["bounds"], there["places"]),
        **{
            "custom_mask": None,
            "is_causal": True,
            "mask_indptr": None,
            "max_len_extend": max(NEW),
            "k_scale": 1.0,
            "v_scale": 1.0,
            "sm_scale": 0.3,
            **options,
        },
    )
    return out.cpu()


@pytest.mark.parametrize(
    ("options", "formula"),
    [
        ({}, {}),
        ({"sliding_window_size": 4}, {"window": 4}),
        ({"logit_cap": 2.0}, {"cap": 2.0}),
    ],
    ids=["causal", "a window", "a cap"],
)
def test_extending(pool: dict[str, Any], options: dict[str, Any], formula: dict[str, Any]) -> None:
    out = extend(pool, **options)
    for row, before in enumerate(BEFORE):
        first, last = pool["starts"][row], pool["starts"][row + 1]
        places = pool["places"][pool["bounds"][row] : pool["bounds"][row + 1]]
        keys = torch.cat((pool["keys"][places], pool["k"][first:last]))
        values = torch.cat((pool["values"][places], pool["v"][first:last]))
        for number in range(last - first):
            seen = before + number + 1
            expected = exact(
                pool["q"][first + number], keys[:seen], values[:seen], scale=0.3, **formula
            )
            torch.testing.assert_close(out[first + number].double(), expected, atol=1e-5, rtol=1e-5)


def decode(pool: dict[str, Any], **options: Any) -> Tensor:
    """The first queries of the sequences that have keys."""
    there = {name: x.to("flagos") for name, x in pool.items()}
    q = there["q"][:2]
    out = torch.full((2, HEADS, VALUES), torch.nan, device="flagos")
    bounds = torch.tensor([0, BEFORE[0], BEFORE[0] + BEFORE[2]], device="flagos").int()
    buffers = (torch.empty(2, HEADS, 8, VALUES), torch.empty(2, HEADS, 8), torch.ones(2).int())
    attention.decode_attention(
        *(q, there["keys"], there["values"], out, bounds, there["places"], *buffers),
        *(8, 0.3, options.pop("k_scale", 1.0), options.pop("v_scale", 1.0)),
        **options,
    )
    return out.cpu()


def test_decoding(pool: dict[str, Any]) -> None:
    out = decode(pool, logit_cap=3.0)
    for row, places in enumerate(pool["places"].split((BEFORE[0], BEFORE[2]))):
        keys, values = pool["keys"][places], pool["values"][places]
        expected = exact(pool["q"][row], keys, values, scale=0.3, cap=3.0)
        torch.testing.assert_close(out[row].double(), expected, atol=1e-5, rtol=1e-5)


def test_a_cache_of_eight_bits_is_times_its_scales(pool: dict[str, Any]) -> None:
    eight = {name: pool[name].to(torch.float8_e4m3fn) for name in ("keys", "values")}
    scaled = {"keys": 2 * eight["keys"].float(), "values": 0.5 * eight["values"].float()}
    found = decode({**pool, **eight}, k_scale=2.0, v_scale=0.5)
    assert torch.equal(found, decode({**pool, **scaled}))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"custom_mask": torch.ones(1)}, "masks of drafts"),
        ({"xai_temperature_len": 5}, "temperatures by the place of a token"),
        ({"lse_extend": torch.ones(1)}, "does not know lse_extend"),
    ],
)
def test_what_the_reference_of_extending_declines(
    pool: dict[str, Any], options: dict[str, Any], words: str
) -> None:
    with pytest.raises(flagos.UnsupportedError, match=words):
        extend(pool, **options)


def test_pages_are_declined(pool: dict[str, Any]) -> None:
    paged = {name: pool[name].view(10, 4, KV_HEADS, -1) for name in ("keys", "values")}
    with pytest.raises(flagos.UnsupportedError, match="single tokens"):
        decode({**pool, **paged})
