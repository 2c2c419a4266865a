"""vLLM's operators ``_C::*`` and ``_moe_C::*`` on flagos tensors: values, and who serves them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import flagos
from vllm_flagos import kernels
from vllm_flagos.kernels.table import KERNELS

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def _declared() -> None:
    kernels.declare()
    torch.manual_seed(0)
    flagos.reset_counters()


def gated(activation: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x, *_: activation(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1]


def quick(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


GATED: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "silu_and_mul": (gated(F.silu), ()),
    "gelu_and_mul": (gated(F.gelu), ()),
    "gelu_tanh_and_mul": (gated(tanh_gelu), ()),
    "mul_and_silu": (lambda x: x.chunk(2, -1)[0] * F.silu(x.chunk(2, -1)[1]), ()),
    "fatrelu_and_mul": (gated(lambda x: torch.where(x > 0.2, x, 0.0 * x)), (0.2,)),
    "swigluoai_and_mul": (
        lambda x, *_: quick(x[..., ::2].clamp(max=0.5)) * (x[..., 1::2].clamp(-0.5, 0.5) + 1),
        (1.702, 0.5),
    ),
    "silu_and_mul_with_clamp": (
        lambda x, *_: F.silu(x.chunk(2, -1)[0].clamp(max=0.5)) * x.chunk(2, -1)[1].clamp(-0.5, 0.5),
        (0.5,),
    ),
}
PLAIN: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_new": tanh_gelu,
    "gelu_fast": tanh_gelu,
    "gelu_quick": quick,
    "relu_squared": lambda x: x.clamp(min=0) ** 2,
}


@pytest.mark.parametrize("name", [*GATED, *PLAIN])
def test_activations(name: str) -> None:
    x = torch.randn(3, 10)
    formula, numbers = GATED[name] if name in GATED else (PLAIN[name], ())
    expected = formula(x.double(), *numbers)
    out = torch.full(expected.shape, torch.nan, device="flagos")
    getattr(torch.ops._C, name)(out, x.to("flagos"), *numbers)
    torch.testing.assert_close(out.cpu().double(), expected, atol=1e-6, rtol=1e-5)
    assert flagos.counters()[f"_C::{name}"] == {"calls": 1, "fallbacks": 0}


@pytest.mark.parametrize("weighted", [True, False])
def test_norms(weighted: bool) -> None:
    x, residual, weight = torch.randn(2, 3, 8), torch.randn(2, 3, 8), torch.randn(8)
    given = weight.to("flagos") if weighted else None

    def normed(x: Tensor) -> Tensor:
        made = x.double() / torch.sqrt(x.double().pow(2).mean(-1, keepdim=True) + 1e-6)
        return made * weight if weighted else made

    out = torch.empty(2, 3, 8, device="flagos")
    torch.ops._C.rms_norm(out, x.to("flagos"), given, 1e-6)
    torch.testing.assert_close(out.cpu().double(), normed(x), atol=1e-6, rtol=1e-5)
    y, kept = x.to("flagos"), residual.to("flagos")
    torch.ops._C.fused_add_rms_norm(y, kept, given, 1e-6)
    torch.testing.assert_close(kept.cpu(), x + residual)
    torch.testing.assert_close(y.cpu().double(), normed(x + residual), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("neox", [True, False])
@pytest.mark.parametrize("rotary", [8, 4])
def test_rotary_embedding(neox: bool, rotary: int) -> None:
    positions = torch.tensor([3, 0, 11])
    angles = torch.outer(torch.arange(16.0), 0.5 ** torch.arange(rotary // 2))
    cache = torch.cat((angles.cos(), angles.sin()), dim=-1)
    packed = torch.randn(3, 40).to("flagos")
    query, key = packed[:, :16], packed[:, 16:24]  # of one product, as vLLM has them
    before = packed.clone()
    torch.ops._C.rotary_embedding(positions.to("flagos"), query, key, 8, cache.to("flagos"), neox)
    for token, position in enumerate(positions.tolist()):
        for head in range(3):
            x = before[token, 8 * head : 8 * head + 8].cpu()
            expected = x.clone()
            for i in range(rotary // 2):
                a, b = (i, i + rotary // 2) if neox else (2 * i, 2 * i + 1)
                c, s = math.cos(angles[position, i]), math.sin(angles[position, i])
                expected[a], expected[b] = x[a] * c - x[b] * s, x[b] * c + x[a] * s
            found = packed[token, 8 * head : 8 * head + 8].cpu()
            torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(packed[:, 24:], before[:, 24:])
    torch.ops._C.rotary_embedding(
        positions.to("flagos"), query, key, 8, cache.to("flagos"), neox, 0, True
    )
    torch.testing.assert_close(packed, before, atol=1e-5, rtol=1e-5)  # back again


def test_eight_bits() -> None:
    x = torch.randn(4, 6).to("flagos")
    for name, scale in {
        "static_scaled_fp8_quant": torch.tensor([0.01], device="flagos"),
        "dynamic_scaled_fp8_quant": torch.zeros(1, device="flagos"),
        "dynamic_per_token_scaled_fp8_quant": torch.zeros(4, 1, device="flagos"),
    }.items():
        out = torch.empty(4, 6, dtype=torch.float8_e4m3fn, device="flagos")
        more = (None,) if name.endswith("token_scaled_fp8_quant") else ()
        getattr(torch.ops._C, name)(out, x, scale, *more)
        assert ((out.float() * scale - x).abs() <= x.abs() / 16 + scale / 128).all(), name
        if "dynamic" in name:
            most = x.abs().amax(-1, keepdim=True) if "token" in name else x.abs().max()
            torch.testing.assert_close(scale, (most / 448).expand_as(scale))


@pytest.mark.parametrize("powers_of_2", [False, True])
@pytest.mark.parametrize("column_major", [False, True])
def test_eight_bits_of_groups(powers_of_2: bool, column_major: bool) -> None:
    x = torch.randn(3, 8)
    x[1, 4:] = 0
    out = torch.empty(3, 8, dtype=torch.float8_e4m3fn, device="flagos")
    scales = (
        torch.zeros(2, 3, device="flagos").t()
        if column_major
        else torch.zeros(3, 2, device="flagos")
    )
    torch.ops._C.per_token_group_fp8_quant(
        x.to("flagos"), out, scales, 4, 1e-10, -448.0, 448.0, powers_of_2, column_major, False
    )
    most = x.unflatten(-1, (2, 4)).abs().amax(-1).clamp(min=1e-10) / 448
    expected = torch.tensor(
        [[2.0 ** math.ceil(math.log2(s)) for s in row] for row in most.tolist()]
    )
    torch.testing.assert_close(scales.cpu(), expected if powers_of_2 else most)
    each = scales.cpu().repeat_interleave(4, dim=1)
    assert ((out.cpu().float() * each - x).abs() <= x.abs() / 16 + each / 128).all()


@pytest.mark.parametrize(
    ("name", "scale"),
    [
        ("static_scaled_fp8_quant", torch.tensor([0.01])),
        ("dynamic_scaled_fp8_quant", torch.zeros(1)),
        ("dynamic_per_token_scaled_fp8_quant", torch.zeros(17, 1)),
    ],
)
@pytest.mark.parametrize("tokens", [1, 6, 17])
def test_eight_bits_into_rows_that_vllm_added(name: str, scale: torch.Tensor, tokens: int) -> None:
    x, scale = torch.randn(tokens, 6).to("flagos"), scale.clone().to("flagos")
    out = torch.full((17, 6), 7.0).to(torch.float8_e4m3fn).to("flagos")
    more = (None,) if "token" in name else ()
    getattr(torch.ops._C, name)(out, x, scale, *more)
    each = scale[:tokens] if "token" in name else scale
    assert ((out[:tokens].float() * each - x).abs() <= x.abs() / 16 + each / 128).all()
    assert out[tokens:].float().eq(7).all() and not scale[tokens:].any()


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("biased", [True, False])
def test_routers(renormalize: bool, biased: bool) -> None:
    gating = torch.randn(5, 8)
    bias = torch.randn(8) if biased else None
    for name, scored, more in (
        ("topk_softmax", gating.double().softmax(-1), ()),
        ("topk_sigmoid", gating.double().sigmoid(), (2.5,)),
    ):
        weights = torch.empty(5, 3, device="flagos")
        chosen, rows = (torch.empty(5, 3, dtype=torch.int32, device="flagos") for _ in range(2))
        getattr(torch.ops._moe_C, name)(
            weights, chosen, rows, gating.to("flagos"), renormalize,
            None if bias is None else bias.to("flagos"), *more,
        )  # fmt: skip
        judged = scored if bias is None else scored + bias
        numbers = judged.sort(descending=True).indices[:, :3]
        expected = scored.gather(1, numbers)
        if renormalize:
            expected = expected / expected.sum(-1, keepdim=True)
        assert chosen.tolist() == numbers.tolist()
        factor = more[0] if more else 1.0
        torch.testing.assert_close(weights.cpu().double(), expected * factor, atol=1e-6, rtol=1e-5)
        assert rows[1].tolist() == [1, 6, 11]

        padding = torch.tensor([False, False, True, False, True], device="flagos")
        getattr(torch.ops._moe_C, name)(
            weights, chosen, rows, gating.to("flagos"), renormalize,
            None if bias is None else bias.to("flagos"), *more, padding,
        )  # fmt: skip
        assert chosen[padding].tolist() == [[-1] * 3] * 2 and not weights[padding].any()
        assert chosen[~padding].tolist() == numbers[~padding.cpu()].tolist()


@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize("sigmoid", [True, False])
def test_the_router_of_groups(renormalize: bool, sigmoid: bool) -> None:
    gating, bias = torch.randn(6, 8), torch.rand(8)
    scores = gating if sigmoid else gating.softmax(-1)
    weights, chosen = torch.ops._moe_C.grouped_topk(
        scores.to("flagos"), 4, 2, 3, renormalize, 2.5, bias.to("flagos"), int(sigmoid)
    )
    assert (weights.dtype, chosen.dtype) == (torch.float32, torch.int32)
    for row, known in enumerate(scores.double().sigmoid() if sigmoid else scores.double()):
        judged = (known + bias).tolist()
        groups = sorted(range(0, 8, 2), key=lambda first: -judged[first] - judged[first + 1])[:2]
        of_them = [number for first in groups for number in (first, first + 1)]
        best = sorted(of_them, key=lambda number: -judged[number])[:3]
        expected = known[best] / (known[best].sum() if renormalize else 1) * 2.5
        assert chosen[row].tolist() == best
        torch.testing.assert_close(weights[row].cpu().double(), expected, atol=1e-6, rtol=1e-5)


def test_repetition_is_penalized() -> None:
    logits = torch.tensor([[2.0, -2.0, 3.0, 0.0], [1.0, -1.0, 4.0, 5.0]])
    prompt, output = torch.zeros(2, 2, 4, dtype=torch.bool)
    prompt[0, 0] = output[0, 1] = prompt[1, 1] = output[1, 3] = True
    given = [each.to("flagos") for each in (logits, prompt, output, torch.tensor([2.0, 0.5]))]
    torch.ops._C.apply_repetition_penalties_(*given)
    assert given[0].tolist() == [[1.0, -4.0, 3.0, 0.0], [1.0, -0.5, 4.0, 10.0]]


def test_the_sum_over_experts() -> None:
    x, out = torch.randn(3, 2, 4), torch.empty(3, 4, device="flagos")
    torch.ops._moe_C.moe_sum(x.to("flagos"), out)
    torch.testing.assert_close(out.cpu(), x.sum(1))
    chosen = torch.tensor([[0, 1], [1, 1], [0, 0]], dtype=torch.int32)
    here = torch.tensor([0, -1], dtype=torch.int32)
    torch.ops._moe_C.moe_sum(x.to("flagos"), out, chosen.to("flagos"), here.to("flagos"))
    expected = torch.stack((x[0, 0], torch.zeros(4), x[2].sum(0)))
    torch.testing.assert_close(out.cpu(), expected)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_places_by_expert(elsewhere: bool) -> None:
    chosen = torch.tensor([[2, 0], [2, 1], [0, 2]], dtype=torch.int32)
    here = torch.tensor([1, -1, 0], dtype=torch.int32) if elsewhere else None
    places, experts, total = (
        torch.full((n,), -7, dtype=torch.int32, device="flagos") for n in (12, 6, 1)
    )
    scattered = torch.full((6, 1), -7, dtype=torch.int32, device="flagos")
    torch.ops._moe_C.moe_align_block_size(
        chosen.to("flagos"),
        3,
        2,
        places,
        experts,
        total,
        None if here is None else here.to("flagos"),
        scattered,
    )
    expected = [0, 1, 2, -1 if elsewhere else 3, 4, 5]
    assert scattered.flatten().tolist() == expected
    between = 6  # the number of places
    if elsewhere:  # expert 2 is the first here, expert 0 the second
        assert total.item() == 6 and experts.tolist()[:3] == [0, 0, 1]
        assert places.tolist()[:6] == [0, 2, 5, between, 1, 4]
    else:
        assert total.item() == 8 and experts.tolist()[:4] == [0, 1, 2, 2]
        assert places.tolist()[:8] == [1, 4, 3, between, 0, 2, 5, between]
    assert set(places.tolist()[total.item() :]) == {between} and experts.min() >= 0


def test_the_latent_cache() -> None:
    low, rotated = torch.randn(3, 4), torch.randn(3, 1, 2)
    cache = torch.zeros(2, 2, 6, device="flagos")
    slots = torch.tensor([3, -1, 0], device="flagos")
    one = torch.ones(1, device="flagos")
    write = torch.ops._C_cache_ops.concat_and_cache_mla
    write(low.to("flagos"), rotated[:, 0].to("flagos"), cache, slots, "auto", one)
    expected = torch.zeros(4, 6)
    expected[3], expected[0] = (
        torch.cat((low[0], rotated[0, 0])),
        torch.cat((low[2], rotated[2, 0])),
    )
    assert torch.equal(cache.cpu().view(4, 6), expected)
    with pytest.raises(flagos.UnsupportedError, match="cache of fp8"):
        write(low.to("flagos"), rotated[:, 0].to("flagos"), cache, slots, "fp8", one)


def test_a_weak_reference_shares_memory() -> None:
    x = torch.arange(12.0, device="flagos").view(3, 4)[:, 1:]
    weak = torch.ops._C.weak_ref_tensor(x)
    assert torch.equal(weak, x) and weak.data_ptr() == x.data_ptr() and weak.stride() == x.stride()
    x.zero_()
    assert not weak.any()


def test_every_operator_is_in_the_plan() -> None:
    for kernel in KERNELS:
        decision = flagos.explain(kernel.qualified).data
        expected = f"reference.{kernel.name}" if kernel.reference else None
        assert decision["winner"] == expected, kernel.qualified
        reasons = {c["impl_id"]: c["reason"] for c in decision["candidates"]}
        assert "vendor host serves flagos here" in reasons[f"vllm_c.{kernel.name}"]


def test_what_is_only_declared_is_an_error_that_names_it() -> None:
    x = torch.zeros(2, 4, device="flagos")
    with pytest.raises(flagos.UnsupportedError, match="_C::silu_and_mul_quant"):
        torch.ops._C.silu_and_mul_quant(x, x, x)


def test_features_that_vllm_asks_for_are_not_there() -> None:
    for name in ("scaled_fp4_quant", "marlin_gemm", "awq_gemm", "cutlass_moe_mm"):
        assert not hasattr(torch.ops._C, name)


def test_a_tensor_of_the_cpu_is_no_business_of_ours() -> None:
    x = torch.zeros(2, 4)
    with pytest.raises(NotImplementedError, match="CPU"):
        torch.ops._C.silu_and_mul(torch.zeros(2, 2), x)


def test_a_program_routes_an_operator() -> None:
    x, out = torch.randn(2, 4, device="flagos"), torch.empty(2, 2, device="flagos")
    name = "_C::silu_and_mul"
    absent = flagos.route({name: "impl:vllm_c.silu_and_mul"})
    with absent, pytest.raises(flagos.UnsupportedError, match="vllm_c"):
        torch.ops._C.silu_and_mul(out, x)
    torch.ops._C.silu_and_mul(out, x)
    assert flagos.counters()[name]["calls"] == 1


@pytest.mark.slow
@pytest.mark.needs("compiler")
def test_compiled_programs_keep_the_operator() -> None:
    def program(x: Tensor) -> Tensor:
        out = torch.empty_like(x)
        torch.ops._C.rms_norm(out, x + 1, None, 1e-6)
        return out * 2

    x = torch.randn(3, 8, device="flagos")
    torch.testing.assert_close(torch.compile(program, fullgraph=True)(x), program(x))
    assert flagos.counters()["_C::rms_norm"]["calls"] == 2
