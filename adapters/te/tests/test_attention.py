"""Attention against softmax(scale·q·kᵀ)·v in float64, written out with its masks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, tensor, wide
from te_fl.core import UnsupportedError
from te_fl.core.ops import (
    NVTE_Bias_Type,
    NVTE_Fused_Attn_Backend,
    NVTE_Mask_Type,
    NVTE_QKV_Layout,
    NVTE_Softmax_Type,
)
from te_fl.operators.attention import fused_attn_bwd, fused_attn_fwd
from te_fl.operators.attention_backend import get_fused_attn_backend
from te_fl.operators.flash_attention import FlashAttention

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")

B, H, D, SCALE = 2, 4, 8, 0.3


def definition(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, allowed: torch.Tensor, bias: Any = 0.0
) -> torch.Tensor:
    """(b, h, s, d) in float64; 0 where nothing is allowed."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = torch.where(allowed, q @ k.mT * SCALE + bias, -torch.inf)
    e = torch.exp(scores - scores.amax(-1, keepdim=True).clamp(min=-1e9))
    total = e.sum(-1, keepdim=True)
    return torch.where(total > 0, e / torch.where(total > 0, total, 1.0), 0.0) @ v


def lay(x: torch.Tensor, layout: str) -> torch.Tensor:
    return x.permute(2, 0, 1, 3) if layout == "SBHD" else x.transpose(1, 2)


def causal(
    sq: int, sk: int, bottom_right: bool, window: tuple[int, int] = (-1, -1)
) -> torch.Tensor:
    row, column = torch.arange(sq)[:, None], torch.arange(sk)[None]
    distance = column - row - (sk - sq if bottom_right else 0)
    allowed = distance <= 0
    return allowed & (distance >= -window[0]) if window[0] >= 0 else allowed


def call(layout: Any, mask: str, q: Any, k: Any, v: Any, **more: Any) -> tuple[Any, ...]:
    """Positional arguments of both directions, up to the tensors."""
    kinds = (layout, more.get("bias_type", 0), NVTE_Mask_Type[f"NVTE_{mask}"], 0)
    window = more.get("window", (-1, -1))
    cu = more.get("cu", (None, None))
    forward = (
        9,
        9,
        True,
        SCALE,
        more.get("dropout", 0.0),
        True,
        *kinds,
        window,
        False,
        *cu,
        q,
        k,
        v,
    )
    backward = (9, 9, SCALE, 0.0, True, *kinds, window, False, True, *cu, q, k, v)
    return forward, backward


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", ["SBHD", "BSHD"])
@pytest.mark.parametrize(
    ("mask", "window"),
    [
        ("NO_MASK", (-1, -1)),
        ("CAUSAL_MASK", (-1, -1)),
        ("CAUSAL_BOTTOM_RIGHT_MASK", (-1, -1)),
        ("CAUSAL_MASK", (2, 0)),
    ],
)
@pytest.mark.parametrize("groups", [H, 2])
def test_dense(mask: str, window: Any, layout: str, groups: int, dtype: torch.dtype) -> None:
    sq, sk = 5, 7
    q, k, v = (
        tensor(B, h, s, D, dtype=dtype, seed=i)
        for i, (h, s) in enumerate([(H, sq), (groups, sk), (groups, sk)])
    )
    wq, wk, wv = (wide(x, True) for x in (q, k, v))
    allowed = torch.ones(sq, sk, dtype=torch.bool)
    if "CAUSAL" in mask:
        allowed = causal(sq, sk, "BOTTOM" in mask, window)
    expected = definition(wq, wk, wv, allowed)
    kind = NVTE_QKV_Layout[f"NVTE_{layout}_{layout}_{layout}"]
    forward, backward = call(kind, mask, *(lay(x, layout) for x in (q, k, v)), window=window)
    out, statistics, _ = fused_attn_fwd(*forward)
    assert out.dtype == dtype and agrees(out, lay(expected, layout))
    scores = torch.where(allowed, wq @ wk.repeat_interleave(H // groups, 1).mT * SCALE, -torch.inf)
    assert agrees(statistics, torch.logsumexp(scores, -1, keepdim=True), dtype)
    dout = tensor(B, H, sq, D, dtype=dtype, seed=9)
    gradients = torch.autograd.grad(expected, (wq, wk, wv), wide(dout))
    got = fused_attn_bwd(*backward, out, lay(dout, layout))
    assert got[3] is None
    for one, right in zip(got[:3], gradients, strict=True):
        assert agrees(one, lay(right, layout))


@pytest.mark.parametrize(
    "mask", ["PADDING_MASK", "PADDING_CAUSAL_MASK", "PADDING_CAUSAL_BOTTOM_RIGHT_MASK"]
)
@pytest.mark.parametrize("packed", [False, True])
def test_sequences_of_several_lengths(packed: bool, mask: str) -> None:
    lengths_q, lengths_k, width = [3, 0, 5], [4, 2, 5], 5
    cu = tuple(torch.tensor([0, *n]).cumsum(0).int() for n in (lengths_q, lengths_k))
    q, k, v = (tensor(3, H, width, D, seed=i) for i in range(3))
    rows = torch.arange(width)
    allowed = torch.zeros(3, 1, width, width, dtype=torch.bool)
    for i, (n, m) in enumerate(zip(lengths_q, lengths_k, strict=True)):
        inside = (
            causal(n, m, "BOTTOM" in mask)
            if "CAUSAL" in mask
            else torch.ones(n, m, dtype=torch.bool)
        )
        allowed[i, 0, :n, :m] = inside
    expected = definition(*(wide(x) for x in (q, k, v)), allowed)
    if packed:
        pick_q = torch.cat([i * width + rows[:n] for i, n in enumerate(lengths_q)])
        pick_k = torch.cat([i * width + rows[:n] for i, n in enumerate(lengths_k)])
        pack = lambda x, pick: x.transpose(1, 2).flatten(0, 1)[pick]  # noqa: E731
        layout, arguments = "NVTE_THD_THD_THD", (pack(q, pick_q), pack(k, pick_k), pack(v, pick_k))
        right = pack(expected, pick_q)
    else:
        layout, arguments = "NVTE_BSHD_BSHD_BSHD", tuple(x.transpose(1, 2) for x in (q, k, v))
        right = expected.transpose(1, 2)
    forward, _ = call(NVTE_QKV_Layout[layout], mask, *arguments, cu=cu)
    assert agrees(fused_attn_fwd(*forward)[0], right)


def test_packed_sequences_with_padding_between_them() -> None:
    lengths, places = [2, 3], [0, 4, 8]
    x = [tensor(8, H, D, seed=i) for i in range(3)]
    cu, padded = torch.tensor([0, 2, 5]).int(), torch.tensor(places).int()
    forward, _ = call(NVTE_QKV_Layout.NVTE_THD_THD_THD, "PADDING_MASK", *x, cu=(cu, cu))
    out = fused_attn_fwd(*forward, None, padded, padded)[0]
    for begin, n in zip(places[:-1], lengths, strict=True):
        part = [wide(t[begin : begin + n]).transpose(0, 1)[None] for t in x]
        expected = definition(*part, torch.ones(n, n, dtype=torch.bool))
        assert agrees(out[begin : begin + n], expected[0].transpose(0, 1))


def test_a_bias_and_its_gradient() -> None:
    q, k, v = (tensor(B, H, 5, D, seed=i) for i in range(3))
    bias, dout = tensor(1, H, 5, 5, seed=4), tensor(B, H, 5, D, seed=9)
    leaves = [wide(x, True) for x in (q, k, v, bias)]
    expected = definition(*leaves[:3], causal(5, 5, False), leaves[3])
    layout = NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD
    arguments = [x.transpose(1, 2) for x in (q, k, v)]
    kind = NVTE_Bias_Type.NVTE_POST_SCALE_BIAS
    forward, backward = call(layout, "CAUSAL_MASK", *arguments, bias_type=kind)
    out = fused_attn_fwd(*forward, Bias=bias)
    assert agrees(out[0], expected.transpose(1, 2))
    right = torch.autograd.grad(expected, leaves, wide(dout))
    aux = [out[1], out[2], bias]
    got = fused_attn_bwd(*backward, out[0], dout.transpose(1, 2), None, None, aux)
    assert agrees(got[0], right[0].transpose(1, 2)) and agrees(got[3], right[3])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("rows", [100, 2])
def test_a_part_of_the_keys_has_its_part_of_the_gradient(
    rows: int, biased: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As under context parallelism: output and statistics of all keys come with the backward pass of each part.
    monkeypatch.setattr("te_fl.operators.attention._SCORES", rows * B * H * 3)
    q, k, v = (tensor(B, h, 6, D, dtype=dtype, seed=i) for i, h in enumerate([H, 2, 2]))
    bias, dout = tensor(1, H, 6, 6, seed=4), tensor(B, H, 6, D, dtype=dtype, seed=9)
    leaves = [wide(x, True) for x in (q, k, v, bias)]
    everything = torch.ones(6, 6, dtype=torch.bool)
    whole = definition(*leaves[:3], everything, leaves[3] if biased else 0.0)
    right = torch.autograd.grad(whole, leaves[: 3 + biased], wide(dout))
    layout = NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD
    parts = []
    for keys in (slice(0, 3), slice(3, 6)):
        arguments = [x.transpose(1, 2) for x in (q, k[:, :, keys], v[:, :, keys])]
        here = {"bias_type": 2 * biased}
        forward, backward = call(layout, "NO_MASK", *arguments, **here)
        given = bias[..., keys].contiguous() if biased else None
        parts.append((*fused_attn_fwd(*forward, Bias=given), backward, given))
    statistics = torch.logsumexp(torch.cat([part[1] for part in parts], -1), -1, keepdim=True)
    out = whole.detach().to(dtype).transpose(1, 2)
    got = [
        fused_attn_bwd(
            *backward, out, dout.transpose(1, 2), None, None,
            [statistics, state, *([given] if biased else [])],
        )
        for _, _, state, backward, given in parts
    ]  # fmt: skip
    assert agrees(sum(wide(one[0]) for one in got), right[0].transpose(1, 2), dtype)
    for i in (1, 2):
        assert agrees(torch.cat([one[i] for one in got], 1), right[i].transpose(1, 2))
    if biased:
        assert agrees(torch.cat([one[3] for one in got], -1), right[3], dtype)
    # The control: with its own statistics a part has the gradient of a softmax over itself alone.
    own = fused_attn_bwd(*parts[0][3], out, dout.transpose(1, 2), None, None, list(parts[0][1:3]))
    assert biased or not agrees(own[1], right[1][:, :, :3].transpose(1, 2))


def test_the_backend_is_that_of_any_length_where_the_operator_serves() -> None:
    kinds = (NVTE_QKV_Layout.NVTE_SBHD_SBHD_SBHD, 0, NVTE_Mask_Type.NVTE_CAUSAL_MASK, 0)
    rest = (H, H, 9, 9, D, D, -1, 0)
    half, single = 6, 4  # kBFloat16, kFloat32
    backend = get_fused_attn_backend(True, half, half, *kinds, 0.0, *rest)
    assert backend == NVTE_Fused_Attn_Backend.NVTE_F16_arbitrary_seqlen
    for declined in (
        (True, single, single, *kinds, 0.0, *rest),
        (True, half, half, *kinds, 0.1, *rest),
        (True, half, half, *kinds[:3], 1, 0.0, *rest),
        (True, half, half, *kinds, 0.0, *rest, True),
    ):
        with pytest.raises(UnsupportedError):
            get_fused_attn_backend(*declined)


@pytest.mark.parametrize("biased", [False, True])
def test_statistics_of_long_sequences_come_in_parts(
    biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k = tensor(7, B, H, D), tensor(7, B, H, D, seed=1)
    bias = {"Bias": tensor(1, H, 7, 7, seed=2)} if biased else {}
    forward, _ = call(
        NVTE_QKV_Layout.NVTE_SBHD_SBHD_SBHD, "CAUSAL_MASK", q, k, k, bias_type=2 * biased
    )
    whole = fused_attn_fwd(*forward, **bias)
    # 3 of the 7 queries at a time.
    monkeypatch.setattr("te_fl.operators.attention._SCORES", 3 * B * H * 7 + 1)
    parts = fused_attn_fwd(*forward, **bias)
    assert agrees(parts[1], whole[1].double()) and torch.equal(parts[0], whole[0])
    first = (wide(q)[0] * wide(k)[0]).sum(-1) * SCALE
    first = first + wide(bias["Bias"])[0, :, 0, 0] if biased else first
    assert agrees(parts[1][:, :, 0, 0], first) and not agrees(parts[1][:, :, 1, 0], first)


def test_the_interface_of_2_9_has_no_diagonal() -> None:
    q, k, v = (tensor(B, 5, H, D, seed=i) for i in range(3))
    forward, backward = call(NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD, "CAUSAL_MASK", q, k, v)
    out = fused_attn_fwd(*forward)[0]
    assert torch.equal(fused_attn_fwd(*forward[:11], *forward[12:])[0], out)
    old, new = (*backward[:10], *backward[11:]), backward
    for one, other in zip(
        fused_attn_bwd(*old, out, q)[:3], fused_attn_bwd(*new, out, q)[:3], strict=True
    ):
        assert torch.equal(one, other)


# TransformerEngine 2.20: [q, k, v], then the formats of the output, of its gradient, of the gradients.
@pytest.mark.parametrize("names", ["BSHD SBHD SBHD BSHD", "BHSD BHSD BSHD BHSD", "THD THD THD THD"])
def test_the_interface_of_2_20_names_formats(names: str) -> None:
    given, out_format, dout_format, grad_format = names.split()
    q, k, v, dout = (tensor(B, H, 5, D, seed=i) for i in range(4))
    leaves = [wide(x, True) for x in (q, k, v)]
    expected = definition(*leaves, causal(5, 5, False))
    gradients = torch.autograd.grad(expected, leaves, wide(dout))

    def laid(x: torch.Tensor, layout: str) -> torch.Tensor:
        if layout == "THD":
            return x.transpose(1, 2).flatten(0, 1)
        return x if layout == "BHSD" else lay(x, layout)

    cu = torch.tensor([0, 5, 10]).int()
    kind = SimpleNamespace(name=f"NVTE_{given}_{given}_{given}")
    grads = SimpleNamespace(name=f"NVTE_{grad_format}_{grad_format}_{grad_format}")
    not_set = SimpleNamespace(name="NVTE_QKV_Format_NOT_SET")
    o, do = (SimpleNamespace(name=f"NVTE_{x}") for x in (out_format, dout_format))
    forward, backward = call(kind, "CAUSAL_MASK", *(laid(x, given) for x in (q, k, v)), cu=(cu, cu))
    new = (*forward[:7], o, not_set, *forward[7:])
    out = fused_attn_fwd(*new, torch.float32, None, None, None, None, None, None, None)
    assert agrees(out[0], laid(expected, out_format))
    assert out[0].is_contiguous()
    new = (*backward[:6], o, do, grads, not_set, not_set, *backward[6:])
    got = fused_attn_bwd(*new, out[0], laid(dout, dout_format), torch.float32, out[1:], cu, cu)
    for one, right in zip(got[:3], gradients, strict=True):
        assert agrees(one, laid(right, grad_format))
    if out_format != given:  # the older interface has the output as the queries are
        assert fused_attn_fwd(*forward)[0].shape == laid(q, given).shape != out[0].shape


def test_arguments_by_name() -> None:
    q, k, v = (tensor(B, 5, H, D, seed=i) for i in range(3))
    forward, _ = call(NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD, "CAUSAL_MASK", q, k, v)
    names = (
        "max_seqlen_q max_seqlen_kv is_training attn_scale p_dropout set_zero qkv_layout bias_type "
        "attn_mask_type softmax_type window_size bottom_right_diagonal cu_seqlens_q cu_seqlens_kv Q K V"
    )
    named = dict(zip(names.split(), forward, strict=True))
    assert torch.equal(fused_attn_fwd(**named)[0], fused_attn_fwd(*forward)[0])


@pytest.mark.parametrize(
    "change",
    [
        {"dropout": 0.1},
        {"bias_type": NVTE_Bias_Type.NVTE_ALIBI},
        {"q": SimpleNamespace(_scale_inv=1)},
    ],
)
def test_what_is_not_supported_is_declined(change: dict[str, Any]) -> None:
    q, k, v = (tensor(B, 5, H, D, seed=i) for i in range(3))
    change = dict(change)  # the parameter is every implementation's
    q = change.pop("q", q)
    forward, _ = call(NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD, "NO_MASK", q, k, v, **change)
    with pytest.raises(UnsupportedError):
        fused_attn_fwd(*forward)
    assert NVTE_Softmax_Type.NVTE_VANILLA_SOFTMAX == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("layout", "mask"), [("sb3hd", "no_mask"), ("bshd_bs2hd", "causal"), ("sbh3d", "causal")]
)
def test_the_module_of_transformer_engine_fl(layout: str, mask: str, dtype: torch.dtype) -> None:
    q, k, v = (tensor(B, H, 6, D, dtype=dtype, seed=i) for i in range(3))
    order = "SBHD" if layout.startswith("s") else "BSHD"
    leaves = [wide(x, True) for x in (q, k, v)]
    allowed = causal(6, 6, True) if mask == "causal" else torch.ones(6, 6, dtype=torch.bool)
    expected = definition(*leaves, allowed)
    given = [lay(x, order).detach().requires_grad_() for x in (q, k, v)]
    out = FlashAttention(SCALE)(*given, qkv_layout=layout, attn_mask_type=mask)
    assert agrees(out, lay(expected, order).flatten(-2))
    dout = tensor(*out.shape, dtype=dtype, seed=8)
    out.backward(dout)
    right = torch.autograd.grad(lay(expected, order).flatten(-2), leaves, wide(dout))
    for leaf, gradient in zip(given, right, strict=True):
        assert leaf.grad is not None and agrees(leaf.grad, lay(gradient, order))
    with pytest.raises(UnsupportedError, match="FP8"):
        FlashAttention(SCALE)(*given, fp8=True)


def test_the_comparison_notices_a_missing_mask() -> None:
    q, k, v = (tensor(B, H, 5, D, seed=i) for i in range(3))
    forward, _ = call(
        NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD, "NO_MASK", *(x.transpose(1, 2) for x in (q, k, v))
    )
    masked = definition(*(wide(x) for x in (q, k, v)), causal(5, 5, False))
    assert not agrees(fused_attn_fwd(*forward)[0], masked.transpose(1, 2))
