"""LightX2V's 8-bit linear layers by Triton: the very bits of torch's operators, wherever the tensors are."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import flagos

pytest.importorskip("triton")
pytest.importorskip("lightx2v_fl", reason="the LightX2V adapter is not installed")

from lightx2v_fl import operators
from lightx2v_fl.operators import quantized

pytestmark = pytest.mark.cuda

INT8, FP8 = torch.int8, torch.float8_e4m3fn
FORMULA = {INT8: quantized.quantize_int8, FP8: quantized.quantize_fp8}
GREATEST = {INT8: 127.0, FP8: 448.0}
TYPES = [torch.bfloat16, torch.float16, torch.float32]


@pytest.fixture(autouse=True)
def nothing_counted() -> Iterator[None]:
    with torch.no_grad():
        flagos.reset_counters()
        yield


@pytest.fixture(scope="module")
def kernels() -> Any:
    from lightx2v_fl.cuda import kernels

    return kernels


def bits(q: Tensor) -> Tensor:
    """The bits of `q` as integers, of which one stands for every NaN."""
    whole = q.to("cuda").view(torch.uint8)
    return whole if q.dtype == INT8 else whole.where(~q.to("cuda").float().isnan(), 0x7F)


def check(kernels: Any, x: Tensor, dtype: torch.dtype) -> None:
    """Quantizes x on cuda, and the same memory on flagos, as the formula does."""
    expected, scale = FORMULA[dtype](x)
    for where in (x, x.to("flagos")):
        found, of_rows = kernels.quantize(where, dtype)
        assert found.device == of_rows.device == where.device
        torch.testing.assert_close(of_rows.to("cuda"), scale, rtol=0, atol=0, equal_nan=True)
        assert torch.equal(bits(found), bits(expected))


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("n", [1, 16, 1536, 5120, 8960, 24575, 32768, 33000])
@pytest.mark.parametrize("rows", [1, 17, 4096])
def test_rows_are_quantized_as_by_the_formula(
    kernels: Any, rows: int, n: int, kind: torch.dtype, dtype: torch.dtype
) -> None:
    sizes = 10.0 ** torch.randint(-9, 4, (rows, 1), device="cuda")
    check(kernels, (torch.randn(rows, n, device="cuda") * sizes).to(kind), dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize("n", [40, 8960, 33000])
def test_what_is_not_a_number(kernels: Any, n: int, kind: torch.dtype, dtype: torch.dtype) -> None:
    x = torch.randn(8, n, device="cuda")
    x[:, 7:10] = torch.tensor([0.0, -0.0, -1e-45], device="cuda")
    x[1, 3], x[2, 3], x[3, n - 1] = math.nan, math.inf, -math.inf
    x[4, 3], x[4, 4] = math.inf, math.nan
    x[5] = 0.0
    x[6] = -0.0
    x[7, 3] = torch.finfo(kind).max
    check(kernels, x.to(kind), dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
@pytest.mark.parametrize("kind", TYPES[:2], ids=str)
def test_every_quotient(kernels: Any, kind: torch.dtype, dtype: torch.dtype) -> None:
    """Each fraction that a row's greatest number can have, and all below it that count."""
    digits = {torch.bfloat16: 7, torch.float16: 10}[kind]
    ones = 1 + torch.arange(2**digits, device="cuda") / 2**digits
    numbers = (ones * 2.0 ** -torch.arange(14, device="cuda").unsqueeze(1)).flatten()
    greatest = ones.unsqueeze(1)
    below = numbers.expand(len(ones), -1).clamp(max=greatest)
    check(kernels, torch.cat([greatest, -below], 1).to(kind), dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_numbers_of_all_sizes(kernels: Any, dtype: torch.dtype) -> None:
    """Any bits of float32, NaN and infinity among them in a part of the rows."""
    shape = (20000, 512)
    whole = torch.randint(-(2**31), 2**31, shape, device="cuda", dtype=torch.int64)
    x = whole.to(torch.int32).view(torch.float32)
    x[:10000] = x[:10000].nan_to_num(1.0, 1.0, 1.0)
    near = torch.randn(10000, 512, device="cuda") * 2.0 ** -torch.randint(
        0, 12, (10000, 512), device="cuda"
    )
    check(kernels, torch.cat([x, near]), dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_rows_and_columns_apart(kernels: Any, dtype: torch.dtype) -> None:
    whole = torch.randn(33, 4096, device="cuda", dtype=torch.bfloat16)
    check(kernels, whole[::2, 16:1552], dtype)
    check(kernels, whole[:, 1:1537], dtype)  # another alignment
    check(kernels, whole.t(), dtype)
    check(kernels, whole[:0], dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_the_comparison_notices_a_product_with_the_reciprocal(dtype: torch.dtype) -> None:
    x = torch.randn(4096, 8960, device="cuda")
    expected, scale = FORMULA[dtype](x)
    y = x * (1 / scale)
    assert not torch.equal(bits((y.round() if dtype == INT8 else y).to(dtype)), bits(expected))


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_a_scale_is_a_division_by_a_number_on_cuda(dtype: torch.dtype) -> None:
    x = torch.rand(1 << 20, 1, device="cuda") * 300
    greatest = GREATEST[dtype]
    assert torch.equal(FORMULA[dtype](x)[1], (x / greatest).clamp_min(1e-12))


# ------------------------------------------------------------------------- whole layers

SHAPES = [(1536, 1536), (1536, 8960), (8960, 1536), (48, 80)]
ROWS = [1, 16, 17, 512, 4095]


def layer(
    name: str, rows: int, inner: int, outer: int, kind: torch.dtype, device: str = "flagos"
) -> tuple[Tensor, ...]:
    """The arguments of the operator: x, the weight as LightX2V holds it, its scale and a bias."""
    drawn = [torch.randn(*shape, device=device, dtype=kind) for shape in ((rows, inner), (outer,))]
    weight = torch.randn(outer, inner, device=device) / inner**0.5
    eight, scale = FORMULA[FP8 if name == "fp8" else INT8](weight)
    return drawn[0], eight.t(), scale, drawn[1]


def served(name: str, by: str, arguments: tuple[Tensor | None, ...]) -> Tensor:
    operator = getattr(operators, f"{name}_linear")
    with flagos.route({operator.name: f"impl:{by}.{name}_linear"}), flagos.strict():
        result: Tensor = operator(*arguments)
    return result


@pytest.mark.parametrize("kind", TYPES, ids=str)
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_a_layer_has_the_bits_of_torchs(
    name: str, rows: int, inner: int, outer: int, kind: torch.dtype
) -> None:
    x, weight, scale, bias = layer(name, rows, inner, outer, kind)
    for given in ((x, weight, scale, bias), (x, weight, scale, None)):
        found = served(name, "triton", given)
        assert found.dtype == kind and found.device.type == "flagos"
        assert torch.equal(found, served(name, "torch", given))


@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_a_weight_of_contiguous_rows(name: str) -> None:
    x, weight, scale, bias = layer(name, 33, 64, 96, torch.bfloat16)
    expected = served(name, "triton", (x, weight, scale, bias))
    assert torch.equal(served(name, "triton", (x, weight.contiguous(), scale, bias)), expected)


@pytest.mark.parametrize(("inner", "outer"), [(1537, 72), (7, 5)])
def test_int8_takes_any_size(inner: int, outer: int) -> None:
    arguments = layer("int8", 100, inner, outer, torch.float32)
    found, expected = (served("int8", by, arguments) for by in ("triton", "reference"))
    assert torch.equal(found, expected)


def test_every_tile_computes_the_same(kernels: Any) -> None:
    from tests.bench.gpu.quantized import TILES

    x, weight, scale, bias = layer("int8", 1000, 1536, 1536, torch.bfloat16)
    q, of_rows = kernels.quantize(x, INT8)
    product = torch._int_mm(q, weight)
    expected = quantized.scaled(product, of_rows, scale, bias).to(x.dtype)
    assert torch.equal(kernels.scale_product(product, of_rows, scale, bias, x.dtype), expected)
    for tile in [kernels.LARGE, kernels.SMALL, *TILES]:
        found = kernels.int8_product(q, of_rows, weight, scale, bias, x.dtype, tile)
        assert torch.equal(found, expected), tile


def test_the_plan_has_triton_serve_and_counts_it() -> None:
    for name in ("int8", "fp8"):
        operator = getattr(operators, f"{name}_linear")
        assert operator.winner == f"triton.{name}_linear"
        operator(*layer(name, 64, 64, 64, torch.bfloat16))
        assert operator.calls == {f"triton.{name}_linear": 1}
        assert flagos.counters()[operator.name] == {"calls": 1, "fallbacks": 0}


# ------------------------------------------------------------------------- graphs, streams, devices


def changed(x: Tensor, run: Callable[[], Tensor], call: Callable[[], Tensor]) -> None:
    """`run` computes what `call` does, of whatever x is by then."""
    for seed in range(3):
        x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
        assert torch.equal(run().clone(), call())


@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_a_layer_is_captured(name: str) -> None:
    arguments = layer(name, 300, 1536, 1536, torch.bfloat16)
    call = lambda: served(name, "triton", arguments)  # noqa: E731
    for _ in range(3):
        call()
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        y = call()
    changed(arguments[0], lambda: (graph.replay(), y)[1], call)


@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_a_layer_runs_on_the_current_stream(name: str) -> None:
    arguments = layer(name, 4000, 1536, 1536, torch.bfloat16)
    expected = served(name, "triton", arguments)
    side = torch.flagos.Stream()
    x = torch.zeros_like(arguments[0])
    torch.flagos.synchronize()
    with torch.flagos.stream(side):
        served(name, "triton", arguments)  # takes the memory that it needs on this stream
        side.synchronize()
        torch.cuda._sleep(1_000_000_000)  # more than half a second
        x.copy_(arguments[0])  # the layer has to wait for it
        assert not side.query()
        found = served(name, "triton", (x, *arguments[1:]))
    assert not side.query()
    side.synchronize()
    assert torch.equal(found, expected)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two devices")
@pytest.mark.parametrize("name", ["int8", "fp8"])
def test_a_layer_runs_where_its_tensors_are(name: str) -> None:
    arguments = layer(name, 300, 1536, 1536, torch.bfloat16)
    there = tuple(a.to("flagos:1") for a in arguments)
    there = (there[0], there[1].t().contiguous().t(), *there[2:])
    assert torch.flagos.current_device() == 0
    found = served(name, "triton", there)
    assert found.device.index == 1 and torch.flagos.current_device() == 0
    assert torch.equal(found.cpu(), served(name, "triton", arguments).cpu())
