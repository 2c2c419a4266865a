"""Rotary embeddings against complex multiplication in float64."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, non_contiguous, tensor, wide
from te_fl.core.ops import NVTE_QKV_Format
from te_fl.operators import rope

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")

S, B, H, D, D2 = 6, 2, 3, 10, 8


def freqs(interleaved: bool, positions: int = 32) -> torch.Tensor:
    """Angles as models make them: the second half repeats the first, or neighbours are equal."""
    base = 10000 ** (-torch.arange(D2 // 2) / (D2 // 2))
    angles = torch.arange(positions)[:, None] * base
    angles = angles.repeat_interleave(2, -1) if interleaved else torch.cat((angles, angles), -1)
    return angles[:, None, None].float()


def definition(x: torch.Tensor, angle: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x (..., d) with pairs multiplied by exp(i·angle); ``angle`` is (..., d2 / 2)."""
    part = x[..., :D2]
    if interleaved:
        pairs = part.unflatten(-1, (-1, 2))
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = part.chunk(2, -1)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angle), angle)
    if interleaved:
        out = torch.stack((turned.real, turned.imag), -1).flatten(-2)
    else:
        out = torch.cat((turned.real, turned.imag), -1)
    return torch.cat((out, x[..., D2:]), -1)


def half(f: torch.Tensor, interleaved: bool) -> torch.Tensor:
    f = f[:, 0, 0].double()
    return f[:, ::2] if interleaved else f[:, : D2 // 2]


def positions(length: int, cp_size: int, cp_rank: int) -> list[int]:
    """Positions of a rank's tokens: chunks `rank` and `2·size − rank − 1` of as many."""
    if cp_size == 1:
        return list(range(length))
    chunk = length // 2
    first, last = cp_rank * chunk, (2 * cp_size - cp_rank - 1) * chunk
    return [*range(first, first + chunk), *range(last, last + chunk)]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", ["SBHD", "BSHD"])
@pytest.mark.parametrize(
    ("start", "cp"), [(None, (1, 0)), ([3, 0], (1, 0)), (None, (2, 0)), (None, (2, 1))]
)
def test_forward_and_backward(
    layout: str, interleaved: bool, dtype: torch.dtype, start: Any, cp: tuple[int, int]
) -> None:
    shape = (S, B, H, D) if layout == "SBHD" else (B, S, H, D)
    x, dy = tensor(*shape, dtype=dtype), tensor(*shape, dtype=dtype, seed=1)
    f = freqs(interleaved)
    offset = torch.tensor(start if start is not None else [0] * B, dtype=torch.int32)
    at = torch.tensor(positions(S, *cp))[:, None] + offset[None]
    at = at if layout == "SBHD" else at.T
    angle = half(f, interleaved)[at].unsqueeze(-2)
    wx = wide(x, True)
    expected = definition(wx, angle, interleaved)
    given = None if start is None else offset
    kind = NVTE_QKV_Format[f"NVTE_{layout}"]
    for source in (x, non_contiguous(x)):
        assert agrees(
            rope.fused_rope_forward(source, f, given, kind, interleaved, None, *cp), expected
        )
    (dx,) = torch.autograd.grad(expected, wx, wide(dy))
    assert agrees(rope.fused_rope_backward(dy, f, given, kind, interleaved, None, *cp), dx)
    if start is None:
        # TransformerEngine 2.9 has the format third.
        assert agrees(rope.fused_rope_backward(dy, f, kind, interleaved, None, *cp), dx)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("cp", [(1, 0), (2, 0), (2, 1)])
def test_packed_sequences(interleaved: bool, cp: tuple[int, int]) -> None:
    lengths = [4, 0, 6]
    cu = torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).to(torch.int32) * cp[0]
    x, dy = tensor(sum(lengths), H, D), tensor(sum(lengths), H, D, seed=1)
    at = [p for length in lengths for p in positions(length, *cp)]
    f = freqs(interleaved)
    angle = half(f, interleaved)[torch.tensor(at)].unsqueeze(-2)
    wx = wide(x, True)
    expected = definition(wx, angle, interleaved)
    thd = SimpleNamespace(name="NVTE_THD", value=2)
    assert agrees(rope.fused_rope_forward(x, f, None, thd, interleaved, cu, *cp), expected)
    (dx,) = torch.autograd.grad(expected, wx, wide(dy))
    assert agrees(rope.fused_rope_backward(dy, f, None, thd, interleaved, cu, *cp), dx)


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("layout", [0, 1])
def test_queries_keys_and_values_together(interleaved: bool, layout: int) -> None:
    lead = (S, B) if layout == 0 else (B, S)
    x = tensor(*lead, H, 2 * D + D + D)  # two query heads share a key
    f = freqs(interleaved)
    at = torch.arange(S)[:, None].expand(S, B)
    at = at if layout == 0 else at.T
    angle = half(f, interleaved)[at].unsqueeze(-2)
    wx = wide(x, True)
    q, k, v = wx.split([2 * D, D, D], -1)
    expected = (
        definition(q.reshape(*lead, 2 * H, D), angle, interleaved),
        definition(k, angle, interleaved),
        v,
    )
    split = [2 * D, D, D]
    got = rope.fused_qkv_rope_forward(x, f, f, None, split, layout, interleaved)
    assert all(agrees(one, other) for one, other in zip(got, expected, strict=True))
    gradients = [tensor(*one.shape, seed=7) for one in expected]
    (dx,) = torch.autograd.grad(expected, wx, [wide(g) for g in gradients])
    back = rope.fused_qkv_rope_backward(*gradients, f, f, split, layout, interleaved)
    assert agrees(back, dx)


@pytest.mark.parametrize("interleaved", [False, True])
def test_angles_of_a_pair_may_differ(interleaved: bool) -> None:
    # Then the gradient is not a turn by the opposite angles, but still the transpose.
    x, dy, f = tensor(S, B, H, D), tensor(S, B, H, D, seed=1), tensor(S, 1, 1, D2, seed=2)
    wx, wf = wide(x, True), wide(f)
    part = wx[..., :D2]
    if interleaved:
        turned = torch.stack((-part[..., 1::2], part[..., ::2]), -1).flatten(-2)
    else:
        turned = torch.cat((-part[..., D2 // 2 :], part[..., : D2 // 2]), -1)
    y = torch.cat((part * wf.cos() + turned * wf.sin(), wx[..., D2:]), -1)
    assert agrees(rope.fused_rope_forward(x, f, None, 0, interleaved), y)
    (dx,) = torch.autograd.grad(y, wx, wide(dy))
    assert agrees(rope.fused_rope_backward(dy, f, None, 0, interleaved), dx)
    assert not agrees(rope.fused_rope_forward(dy, -f, None, 0, interleaved), dx)


def test_the_comparison_notices_the_other_pairing_and_another_position() -> None:
    x, f = tensor(S, B, H, D), freqs(False)
    expected = definition(wide(x), half(f, False)[:S][:, None, None], False)
    assert agrees(rope.fused_rope_forward(x, f), expected)
    assert not agrees(rope.fused_rope_forward(x, f, None, 0, True), expected)
    shifted = torch.ones(B, dtype=torch.int32)
    assert not agrees(rope.fused_rope_forward(x, f, shifted), expected)


@pytest.mark.parametrize(
    ("change", "report"),
    [
        ({"freqs": torch.zeros(2, 1, 1, D2)}, "2 positions for 6 tokens"),
        ({"freqs": torch.zeros(8, D2)}, "freqs must be"),
        ({"freqs": torch.zeros(8, 1, 1, 3)}, "last dimension of freqs is odd"),
        ({"input": torch.zeros(5, B, H, D), "cp_size": 2}, "two chunks of one length"),
        ({"input": torch.zeros(S, H, D)}, "4 dimensions"),
        ({"input": torch.zeros(S, H, D), "qkv_format": 2}, "needs cu_seqlens"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, Any], report: str) -> None:
    with pytest.raises(ValueError, match=report):
        rope.fused_rope_forward(**{"input": tensor(S, B, H, D), "freqs": freqs(False), **change})
