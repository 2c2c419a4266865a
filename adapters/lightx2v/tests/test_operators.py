"""The operators against formulas in float64, and who serves them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from flagos import UnsupportedError
from lightx2v_fl import operators
from lightx2v_fl.operators.quantized import quantize_fp8, quantize_int8

NATIVE = ("attention", "attention_with_lse", "int8_linear", "layer_norm", "linear", "moe",
          "rms_norm", "rope")  # fmt: skip


def drawn(*shape: int, seed: int = 0, by: float = 1.0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * by


# Each case: the operator, its arguments on the CPU, and the answer in float64.


def rms_norm_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    x, w = drawn(5, 48), drawn(48, seed=1)
    wide = x.double()
    expected = wide / (wide.square().mean(-1, keepdim=True) + 1e-6).sqrt() * w.double()
    return operators.rms_norm, (x, w, 1e-6), expected


def layer_norm_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    x, w, b = drawn(5, 48) + 3, drawn(48, seed=1), drawn(48, seed=2)
    wide = x.double()
    centred = wide - wide.mean(-1, keepdim=True)
    normed = centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    return operators.layer_norm, (x, w, b, 1e-6), normed * w.double() + b.double()


def linear_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    x, w, b = drawn(5, 32), drawn(48, 32, seed=1), drawn(48, seed=2)
    return operators.linear, (x, w.t(), b), x.double() @ w.double().t() + b.double()


def attention_scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """[batch, heads, queries, keys]."""
    group = q.shape[2] // k.shape[2]
    spread = k.double().repeat_interleave(group, dim=2)
    return torch.einsum("bqhd,bkhd->bhqk", q.double(), spread) * scale


def attention_case(causal: bool = False) -> tuple[Any, tuple[Any, ...], Tensor]:
    q, k, v = (drawn(2, 7, 4, 16, seed=i, by=2.0) for i in range(3))
    k, v = k[:, :, :2], v[:, :, :2]  # each serves two heads of the queries
    scores = attention_scores(q, k, 0.5)
    if causal:
        scores = scores.masked_fill(torch.ones(7, 7).triu(1).bool(), -math.inf)
    values = v.double().repeat_interleave(2, dim=2)
    expected = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), values)
    return operators.attention, (q, k, v, None, 0.5, causal), expected


def causal_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    return attention_case(causal=True)


def masked_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    q, k, v = (drawn(1, 7, 2, 16, seed=i) for i in range(3))
    mask = torch.rand(1, 1, 7, 7, generator=torch.Generator().manual_seed(9)) > 0.3
    mask |= torch.eye(7, dtype=torch.bool)
    scores = attention_scores(q, k, 0.25).masked_fill(~mask, -math.inf)
    expected = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), v.double())
    return operators.attention, (q, k, v, mask, None, False), expected


def rope_case(interleaved: bool = True) -> tuple[Any, tuple[Any, ...], Tensor]:
    q, k = drawn(6, 3, 8), drawn(6, 3, 8, seed=1)
    angles = drawn(6, 1, 4, seed=2).double() * 3
    expected = []
    for x in (q, k):
        wide = x.double()
        first, second = (
            (wide[..., 0::2], wide[..., 1::2]) if interleaved else (wide[..., :4], wide[..., 4:])
        )
        turned = (
            first * angles.cos() - second * angles.sin(),
            first * angles.sin() + second * angles.cos(),
        )
        expected.append(
            torch.stack(turned, -1).flatten(-2) if interleaved else torch.cat(turned, -1)
        )
    freqs = torch.polar(torch.ones_like(angles), angles).to(torch.complex64)
    arguments = ((q, k), freqs, interleaved, torch.float32)
    return operators.rope, arguments, torch.stack(expected)


def split_rope_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    return rope_case(interleaved=False)


def quantized_case(operator: Any, quantize: Callable[..., Any]) -> tuple[Any, Any, Tensor]:
    x, w, b = drawn(9, 32), drawn(48, 32, seed=1), drawn(48, seed=2)
    quantized, scale = quantize(w)
    activations, of_tokens = quantize(x)
    product = (activations.double() * of_tokens.double()) @ (
        quantized.double() * scale.double()
    ).t()
    return operator, (x, quantized.t(), scale, b), product + b.double()


def fp8_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    return quantized_case(operators.fp8_linear, quantize_fp8)


def int8_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    return quantized_case(operators.int8_linear, quantize_int8)


def moe_case(activation: str = "swiglu") -> tuple[Any, tuple[Any, ...], Tensor]:
    tokens, experts, width, inner = 6, 4, 8, 10
    middle = inner * (2 if activation == "swiglu" else 1)
    x, fc1, fc2 = (
        drawn(tokens, width),
        drawn(experts, middle, width, seed=1),
        drawn(experts, width, inner, seed=2),
    )
    b1, b2 = drawn(experts, middle, seed=3), drawn(experts, width, seed=4)
    chosen = torch.tensor(
        [[0, 1], [1, 3], [3, 0], [0, 1], [1, 0], [3, 1]]
    )  # no token goes to expert 2
    scales = drawn(tokens, 2, seed=5).softmax(-1)
    expected = torch.zeros(tokens, width, dtype=torch.float64)
    for token in range(tokens):
        for slot in range(2):
            e = int(chosen[token, slot])
            hidden = x[token].double() @ fc1[e].double().t() + b1[e].double()
            if activation == "swiglu":
                hidden = hidden[:inner] * torch.nn.functional.silu(hidden[inner:])
            else:
                hidden = torch.nn.functional.gelu(hidden)
            out = hidden @ fc2[e].double().t() + b2[e].double()
            expected[token] += scales[token, slot].double() * out
    return operators.moe, (x, chosen, scales, fc1, fc2, b1, b2, activation), expected


def gelu_moe_case() -> tuple[Any, tuple[Any, ...], Tensor]:
    return moe_case("gelu")


CASES = [
    rms_norm_case, layer_norm_case, linear_case, attention_case, causal_case, masked_case, rope_case,
    split_rope_case, fp8_case, int8_case, moe_case, gelu_moe_case,
]  # fmt: skip


def placed(value: Any, device: str) -> Any:
    if isinstance(value, Tensor):
        return value.to(device)
    return tuple(placed(v, device) for v in value) if isinstance(value, tuple) else value


def joined(result: Any) -> Tensor:
    parts = result if isinstance(result, tuple) else (result,)
    return torch.stack([part.double().cpu() for part in parts]).squeeze(0)


@pytest.mark.parametrize("kind", ["vendor", "reference"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__.removesuffix("_case"))
def test_each_implementation_follows_the_formula(case: Any, kind: str, device: str) -> None:
    operator, arguments, expected = case()
    if kind == "vendor" and operator is operators.fp8_linear:
        pytest.skip("torch has no 8-bit float product with a scale per row on the CPU")
    with flagos.route({operator.name: kind}):
        result = operator(*placed(arguments, device))
        served = operator.winner
    assert served.startswith(("torch.", "triton.") if kind == "vendor" else "reference.")
    first = result[0] if isinstance(result, tuple) else result
    assert first.device.type == device
    torch.testing.assert_close(joined(result), expected, rtol=2e-5, atol=2e-5)
    assert operator.calls == {served: 1}


@pytest.mark.parametrize("wrong", ["layout", "scale", "gate"])
def test_the_comparison_notices_a_mistake(wrong: str) -> None:
    case = {"layout": rope_case, "scale": attention_case, "gate": moe_case}[wrong]
    operator, arguments, expected = case()
    if wrong == "layout":
        arguments = (*arguments[:2], False, arguments[3])
    elif wrong == "scale":
        arguments = (*arguments[:4], None, arguments[5])
    else:
        fc1 = arguments[3].roll(10, dims=1)
        arguments = (*arguments[:3], fc1, *arguments[4:])
    difference = (joined(operator(*arguments)) - expected).norm() / expected.norm()
    assert difference > 0.1


@pytest.mark.parametrize("kind", ["vendor", "reference"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_parts_of_the_keys_join_to_the_whole(kind: str, dtype: torch.dtype, device: str) -> None:
    q, k, v = (drawn(1, 9, 2, 16, seed=i, by=2.0).to(device, dtype) for i in range(3))
    whole = operators.attention(q, k, v, None, None, False).double().cpu()
    with flagos.route({"lightx2v::attention_with_lse": kind}):
        parts = [operators.attention_with_lse(q, k[:, a], v[:, a], None)
                 for a in (slice(0, 4), slice(4, 9))]  # fmt: skip
    assert all(lse.shape == (1, 9, 2) and lse.dtype == torch.float32 for _, lse in parts)
    outputs = torch.stack([output.double().cpu() for output, _ in parts])
    shares = torch.stack([lse.double().cpu() for _, lse in parts]).softmax(0)
    together = (outputs * shares.unsqueeze(-1)).sum(0)
    tolerance = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(together, whole, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("quantize", "step"), [(quantize_fp8, 2**-4), (quantize_int8, 1 / 127)])
def test_quantization_keeps_the_rows(quantize: Callable[..., Any], step: float) -> None:
    x = drawn(6, 64) * torch.tensor([1e-6, 1e-2, 1.0, 30.0, 1e4, 0.0]).unsqueeze(1)
    quantized, scale = quantize(x)
    assert scale.shape == (6, 1) and scale.dtype == torch.float32
    error = (quantized.float() * scale - x).abs().amax(1)
    assert (error <= x.abs().amax(1) * step).all()
    assert not quantized[5].float().any()


def test_the_host_is_served_by_torch() -> None:
    assert {name: getattr(operators, name).winner for name in NATIVE} == {
        name: f"torch.{name}" for name in NATIVE
    }
    assert operators.fp8_linear.winner == "reference.fp8_linear"


def test_the_plan_explains_itself() -> None:
    text = str(flagos.explain("lightx2v::rms_norm"))
    assert "lightx2v::rms_norm -> torch.rms_norm" in text
    assert "flaggems.rms_norm" in text and "unavailable: " in text
    with pytest.raises(flagos.FlagosError, match=r"lightx2v::rms_norm"):
        flagos.explain("lightx2v::rms_nrom")


def test_a_route_without_a_usable_implementation_blocks() -> None:
    with flagos.route({"lightx2v::rms_norm": "flaggems"}):
        with pytest.raises(UnsupportedError, match="unavailable: FlagGems"):
            operators.rms_norm(drawn(2, 8), None, 1e-6)


@pytest.fixture
def choosy() -> Iterator[list[int]]:
    """An implementation that takes only rows of 8, preferred to all others."""
    calls: list[int] = []

    def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        calls.append(x.shape[-1])
        if x.shape[-1] != 8:
            raise UnsupportedError(f"rows of {x.shape[-1]}")
        return torch.zeros_like(x)

    flagos.register("lightx2v::rms_norm", rms_norm, impl_id="test.choosy", priority=5)
    yield calls
    flagos.unregister("lightx2v::rms_norm", "test.choosy")


def test_a_declined_call_is_served_and_counted(choosy: list[int]) -> None:
    assert not operators.rms_norm(drawn(2, 8), None, 1e-6).any()
    x = drawn(2, 16)
    expected = torch.nn.functional.rms_norm(x, (16,), None, 1e-6)
    assert torch.equal(operators.rms_norm(x, None, 1e-6), expected)
    assert choosy == [8, 16]
    assert operators.rms_norm.calls == {"test.choosy": 1, "torch.rms_norm": 1}
    assert flagos.counters()["lightx2v::rms_norm"] == {"calls": 2, "fallbacks": 1}


def test_strict_mode_refuses_a_declined_call(choosy: list[int]) -> None:
    with flagos.strict(), pytest.raises(UnsupportedError, match=r"rows of 16.*strict mode"):
        operators.rms_norm(drawn(2, 16), None, 1e-6)
    assert choosy == [16]
    assert operators.rms_norm.calls == {}
