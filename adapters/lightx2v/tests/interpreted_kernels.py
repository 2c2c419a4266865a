"""The kernels of 8-bit linear layers by Triton's interpreter, bit for bit beside the formulas.

test_kernels.py runs this with TRITON_INTERPRET=1, in a process where nobody has imported Triton before.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from lightx2v_fl.cuda import eight_bits, kernels
from lightx2v_fl.operators import quantized

INT8, FP8 = torch.int8, torch.float8_e4m3fn
FORMULA = {INT8: quantized.quantize_int8, FP8: quantized.quantize_fp8}
TYPES = [torch.bfloat16, torch.float16, torch.float32]
TILE = kernels.Tile(16, 32, 32, warps=4, stages=2)


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(autouse=True, scope="module")
def as_on_a_device() -> Iterator[None]:
    """Rounding where the interpreter of Triton 3.6 cuts numbers, or rounds a fused product and sum twice."""
    import numpy as np
    import triton.language as tl
    from triton.runtime import interpreter

    rounded = {tl.float8e4nv: (FP8, torch.uint8), tl.bfloat16: (torch.bfloat16, torch.uint16)}
    cut = interpreter._convert_float

    def convert(data: Any, source: Any, target: Any, mode: Any) -> Any:
        if source != tl.float32 or target not in rounded:
            return cut(data, source, target, mode)
        kind, bits = rounded[target]
        return torch.from_numpy(np.array(data, np.float32)).to(kind).view(bits).numpy()

    def fma(self: Any, x: Any, y: Any, z: Any) -> Any:
        # In float64 the product of two numbers of 24 bits is exact.
        wide = x.data.astype(np.float64) * y.data.astype(np.float64) + z.data
        return interpreter.TensorHandle(wide.astype(np.float32), z.dtype.scalar)

    # A scalar is an array of one element, of which numpy 2.5 makes no number by itself.
    described = interpreter._patch_lang_tensor

    def describe(tensor: Any, scope: Any) -> None:
        described(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data.item()))

    with pytest.MonkeyPatch.context() as patch, np.errstate(all="ignore"):
        patch.setattr(interpreter, "_patch_lang_tensor", describe)
        patch.setattr(interpreter, "_convert_float", convert)
        patch.setattr(interpreter.InterpreterBuilder, "create_fma", fma)
        yield


def bits(q: Tensor) -> Tensor:
    """The bits of `q` as integers, of which one stands for every NaN: a formula does not define NaN's sign."""
    whole = q.view(torch.uint8)
    return whole if q.dtype == INT8 else whole.where(~q.float().isnan(), 0x7F)


def check(x: Tensor, dtype: torch.dtype) -> None:
    expected, scale = FORMULA[dtype](x)
    found, of_rows = kernels.quantize(x, dtype)
    torch.testing.assert_close(of_rows, scale, rtol=0, atol=0, equal_nan=True)
    assert found.dtype == dtype and found.is_contiguous()
    assert torch.equal(bits(found), bits(expected))


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
@pytest.mark.parametrize(
    ("n", "kind"),
    [
        (1, torch.bfloat16),
        (17, torch.float16),
        (1536, torch.bfloat16),
        (8960, torch.float32),
        (33000, torch.bfloat16),
    ],
)
def test_rows_are_quantized_as_by_the_formula(
    n: int, kind: torch.dtype, dtype: torch.dtype
) -> None:
    sizes = torch.tensor([1e-30, 1e-2, 30.0, 0.0]).unsqueeze(1)
    check((drawn(4, n) * sizes).to(kind), dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_what_is_not_a_number(kind: torch.dtype, dtype: torch.dtype) -> None:
    x = drawn(8, 40)
    x[:, 7:10] = torch.tensor([0.0, -0.0, -1e-45])
    x[1, 3], x[2, 3], x[3, 3] = math.nan, math.inf, -math.inf
    x[4, 3:5] = torch.tensor([math.inf, math.nan])
    x[5] = 0.0
    x[6] = -0.0
    x[7, 3] = torch.finfo(kind).max
    check(x.to(kind), dtype)


def quotients() -> Tensor:
    """32 of the 128 fractions that a row's greatest bfloat16 can have, and all below it that count."""
    ones = (
        torch.arange(0x3F80, 0x4000, dtype=torch.int16).view(torch.bfloat16).float()
    )  # from 1 to 2
    below = (ones * 2.0 ** -torch.arange(20).unsqueeze(1)).flatten()
    greatest = ones[::4].unsqueeze(1)
    return torch.cat([greatest, -below.expand(32, -1).clamp(max=greatest)], 1).bfloat16()


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_quotients_of_bfloat16(dtype: torch.dtype) -> None:
    check(quotients(), dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_rows_and_columns_apart(dtype: torch.dtype) -> None:
    whole = drawn(9, 96)
    check(whole[::2, 16:64], dtype)
    check(whole[:, :10].t(), dtype)
    check(whole[:0], dtype)


@pytest.mark.parametrize("dtype", FORMULA, ids=str)
def test_the_comparison_notices_a_product_with_the_reciprocal(dtype: torch.dtype) -> None:
    x = quotients()
    expected, scale = FORMULA[dtype](x)
    y = x * (1 / scale)
    assert not torch.equal(bits((y.round() if dtype == INT8 else y).to(dtype)), bits(expected))


def int8(*shape: int, seed: int) -> Tensor:
    return torch.randint(-127, 128, shape, generator=torch.Generator().manual_seed(seed)).to(INT8)


PRODUCTS = [(1, 16, 8), (17, 40, 72)]


@pytest.mark.parametrize(
    ("kind", "with_bias"),
    [(torch.bfloat16, True), (torch.bfloat16, False), (torch.float16, True), (torch.float32, True)],
)
@pytest.mark.parametrize(("rows", "inner", "columns"), PRODUCTS)
def test_products_are_scaled_as_by_the_formula(
    rows: int, inner: int, columns: int, kind: torch.dtype, with_bias: bool
) -> None:
    q, weight = int8(rows, inner, seed=0), int8(columns, inner, seed=1).t()
    scale, of_columns = drawn(rows, 1).abs(), drawn(columns, 1, seed=2).abs()
    bias = drawn(columns, seed=3).to(kind) if with_bias else None
    product = torch._int_mm(q, weight)
    expected = quantized.scaled(product, scale, of_columns, bias).to(kind)
    assert torch.equal(kernels.scale_product(product, scale, of_columns, bias, kind), expected)
    whole = kernels.int8_product(q, scale, weight, of_columns, bias, kind, TILE)
    assert torch.equal(whole, expected)


@pytest.mark.parametrize("capability", [(9, 0), (8, 0)], ids=["whole", "scaled after"])
@pytest.mark.parametrize("transposed", [True, False])
def test_a_layer_is_served_as_by_torch(
    transposed: bool, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "native_type", lambda x: "cuda")
    monkeypatch.setattr(eight_bits, "_capability", lambda index: capability)
    monkeypatch.setattr(kernels, "_tile", lambda *_: TILE)
    x, bias = drawn(9, 32).bfloat16(), drawn(48).bfloat16()
    weight, scale = quantized.quantize_int8(drawn(48, 32, seed=1))
    given = weight.t() if transposed else weight.t().contiguous()
    served = quantized._int8_triton(x, given, scale, bias)
    assert torch.equal(served, quantized._int8_native(x, given, scale, bias))
    assert served.dtype == torch.bfloat16


def test_what_the_kernels_do_not_take_is_declined(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, scale = quantized.quantize_int8(drawn(8, 8))
    with pytest.raises(quantized._core.UnsupportedError, match="not cpu"):
        quantized._int8_triton(drawn(2, 8), weight, scale, None)
    monkeypatch.setattr(quantized, "native_type", lambda x: "cuda")
    for x in (drawn(2, 8).double(), drawn(1, 2, 8), drawn(2, 0)):
        with pytest.raises(quantized._core.UnsupportedError, match=str(x.dtype)):
            quantized._int8_triton(x, weight, scale, None)


@pytest.mark.parametrize("capability", [(9, 0), (8, 0)], ids=["whole", "scaled after"])
def test_shapes_that_do_not_fit_are_not_computed(
    capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quantized, "native_type", lambda x: "cuda")
    monkeypatch.setattr(eight_bits, "_capability", lambda index: capability)
    weight, scale = quantized.quantize_int8(drawn(48, 32))
    for inner in (16, 64):
        with pytest.raises(ValueError, match=r"expected x \[tokens, 32\]"):
            quantized._int8_triton(drawn(4, inner), weight.t(), scale, None)
    with pytest.raises(ValueError, match=r"expected torch\.int8"):
        quantized._int8_triton(drawn(4, 32), weight.t().float(), scale, None)
    for of_columns, bias in ((scale[:40], None), (scale[:1], None), (scale, drawn(1))):
        with pytest.raises(quantized._core.UnsupportedError, match="each of the 48 columns"):
            quantized._int8_triton(drawn(4, 32), weight.t(), of_columns, bias)
