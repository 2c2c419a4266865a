"""Triton kernels of the 8-bit linear layers: each reads its inputs once, and writes only the result.

``quantize`` computes quantize_fp8 and quantize_int8 of ``quantized``, ``scale_product`` scales a product of
int8, and ``int8_product`` computes and scales that product. The results have the same bits as those formulas
on the same device. The kernels take tensors of cuda, and flagos tensors over them, and run on the current stream.

The import needs Triton.
"""

# No `from __future__ import annotations`: Triton reads annotations as objects.
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from lightx2v_fl.operators import formats

GREATEST = {formats.FP8: formats.FP8_MAX, torch.int8: formats.INT8_MAX}
SMALLEST_SCALE = tl.constexpr(formats.SMALLEST_SCALE)
ROUNDER = tl.constexpr(1.5 * 2**23)  # x + ROUNDER has the rounded small x in its lowest bits

WIDEST = 32768  # the longest row that is kept in registers
WIDE_BLOCK = 8192  # the block of a longer row, which is read twice


class Tile(NamedTuple):
    """The tile of a program of `int8_product`: rows × columns, in steps of `inner`."""

    rows: int
    columns: int
    inner: int
    warps: int
    stages: int


LARGE = Tile(128, 128, 128, warps=4, stages=3)
SMALL = Tile(64, 128, 128, warps=4, stages=4)  # used when LARGE would leave multiprocessors idle


def open_driver() -> None:
    """Make Triton open its driver. Raises RuntimeError without the C compiler that this needs."""
    if not triton.knobs.runtime.interpret:
        triton.runtime.driver.active.get_current_target()


def quantize(x: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """x [rows, n] as `dtype`, float8_e4m3fn or int8, and float32 scales [rows, 1]: x ≈ q · scale."""
    rows, n = x.shape
    if n > 1 and x.stride(1) != 1:
        x = x.contiguous()
    quantized = torch.empty((rows, n), dtype=dtype, device=x.device)
    scale = torch.empty((rows, 1), dtype=torch.float32, device=x.device)
    if not rows:
        return quantized, scale
    arguments = (x, quantized, scale, n, x.stride(0), 1 / GREATEST[dtype])
    with _current(x.device):
        if n > WIDEST:
            _quantize_wide_rows[(rows,)](*arguments, BLOCK=WIDE_BLOCK, num_warps=16)
        else:
            head, tail, warps = parts(n)
            _quantize_rows[(rows,)](*arguments, HEAD=head, TAIL=tail, num_warps=warps)
    return quantized, scale


def parts(n: int) -> tuple[int, int, int]:
    """(head, tail, warps): two powers of two that cover a row of n. Only the tail, which may be 0, is masked."""
    head = _power_of_two(n)
    tail: int = triton.next_power_of_2(n - head) if n > head else 0
    return head, tail, max(2, _power_of_two((head + tail) // 1024))  # at most 64 numbers a thread


def _power_of_two(n: int) -> int:
    """The greatest power of two that is at most n; 0 for n = 0."""
    return 1 << n.bit_length() >> 1


def scale_product(
    product: Tensor, scale: Tensor, weight_scale: Tensor, bias: Tensor | None, dtype: torch.dtype
) -> Tensor:
    """(product · scale) · weight_scaleᵀ + bias in float32, as `dtype`: product int32 [rows, out]."""
    rows, columns = product.shape
    output = torch.empty((rows, columns), dtype=dtype, device=product.device)
    if not output.numel():
        return output
    grid = (triton.cdiv(rows, 8), triton.cdiv(columns, 512))
    with _current(product.device):
        _scale_product[grid](
            product.contiguous(), output, scale, *_by_column(weight_scale, bias), rows, columns,
            ROWS=8, COLUMNS=512, num_warps=4, enable_fp_fusion=False,
        )  # fmt: skip
    return output


def int8_product(
    quantized: Tensor,
    scale: Tensor,
    weight: Tensor,
    weight_scale: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
    tile: Tile | None = None,
) -> Tensor:
    """`scale_product` of quantized [rows, in] @ weight [in, out], both int8, with an exact int32 product.

    The weight's columns are contiguous, as tensor cores read 8-bit numbers.
    """
    rows, inner = quantized.shape
    columns = weight.shape[1]
    output = torch.empty((rows, columns), dtype=dtype, device=quantized.device)
    if not output.numel():
        return output
    chosen = tile or _tile(rows, columns, quantized.device)
    grid = (triton.cdiv(rows, chosen.rows) * triton.cdiv(columns, chosen.columns),)
    with _current(quantized.device):
        _int8_product[grid](
            quantized, weight, output, scale, *_by_column(weight_scale, bias),
            rows, columns, inner, weight.stride(1), EVEN=inner % chosen.inner == 0,
            ROWS=chosen.rows, COLUMNS=chosen.columns, INNER=chosen.inner,
            num_warps=chosen.warps, num_stages=chosen.stages, enable_fp_fusion=False,
        )  # fmt: skip
    return output


def _by_column(weight_scale: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
    return weight_scale.float().contiguous(), None if bias is None else bias.contiguous()


def _tile(rows: int, columns: int, device: torch.device) -> Tile:
    tiles = triton.cdiv(rows, LARGE.rows) * triton.cdiv(columns, LARGE.columns)
    multiprocessors = torch.cuda.get_device_properties(device.index).multi_processor_count
    return LARGE if tiles >= multiprocessors else SMALL


def _current(device: torch.device) -> AbstractContextManager[Any]:
    # Triton launches on the current device, which cuda and flagos share. On the CPU Triton interprets.
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device.index)


@triton.jit
def _magnitudes(x):
    """The bits of |x|. As integers they are ordered as the numbers are, and NaN is above infinity."""
    return x.to(tl.int32, bitcast=True) & 0x7FFFFFFF


@triton.jit
def _scale(largest, inverse):
    scale = largest.to(tl.float32, bitcast=True) * inverse
    return tl.where(scale < SMALLEST_SCALE, SMALLEST_SCALE, scale)  # NaN stays


@triton.jit
def _as_divisor(scale):
    """(divisor, negative reciprocal). An infinite scale gives (1, -0): numbers become 0, and infinity NaN."""
    return tl.where(scale == float("inf"), 1.0, scale), _negative(tl.div_rn(1.0, scale))


@triton.jit
def _negative(x):
    return x * -1.0  # Triton's -x is 0 - x, which makes both zeros positive


@triton.jit
def _quantized(x, divisor, inverse, dtype: tl.constexpr):
    """x / divisor, correctly rounded, in 8 bits; `inverse` is -1 / divisor.

    A division costs more than the rest of the kernel, and all numbers of a row have one divisor. Two
    corrections of the product with the rounded reciprocal give the rounded quotient (Markstein): the
    remainder is exact, since a scale of at least 1e-12 keeps it far from subnormal numbers unless the
    quotient becomes 0. The signs are chosen to keep the sign of a zero.

    The quotient exceeds the greatest number by a rounding at most, so it needs no clamp.
    """
    minus = _negative(x)
    y = minus * inverse
    y = tl.fma(tl.fma(y, divisor, minus), inverse, y)
    y = tl.fma(tl.fma(y, divisor, minus), inverse, y)
    if dtype == tl.int8:
        y = tl.where(y == y, y, 0.0)
        return (y + ROUNDER).to(tl.int32, bitcast=True).to(tl.int8)  # half to even
    else:
        return y.to(dtype)


@triton.jit
def _quantize_rows(x, q, scales, n, stride, inverse, HEAD: tl.constexpr, TAIL: tl.constexpr):
    """A program quantizes a row."""
    row = tl.program_id(0).to(tl.int64)
    x += row * stride
    q += row * n
    at = tl.arange(0, HEAD)
    head = tl.load(x + at).to(tl.float32)
    largest = tl.max(_magnitudes(head), axis=0)
    if TAIL > 0:
        rest = HEAD + tl.arange(0, TAIL)
        tail = tl.load(x + rest, mask=rest < n, other=0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(_magnitudes(tail), axis=0))
    scale = _scale(largest, inverse)
    tl.store(scales + row, scale)
    divisor, over = _as_divisor(scale)
    tl.store(q + at, _quantized(head, divisor, over, q.dtype.element_ty))
    if TAIL > 0:
        values = _quantized(tail, divisor, over, q.dtype.element_ty)
        tl.store(q + rest, values, mask=rest < n)


@triton.jit
def _quantize_wide_rows(x, q, scales, n, stride, inverse, BLOCK: tl.constexpr):
    """A program quantizes a row. It reads the row a second time from the cache."""
    row = tl.program_id(0).to(tl.int64)
    x += row * stride
    q += row * n
    at = tl.arange(0, BLOCK)
    magnitudes = tl.zeros([BLOCK], tl.int32)
    for start in range(0, n, BLOCK):
        block = tl.load(x + start + at, mask=start + at < n, other=0).to(tl.float32)
        magnitudes = tl.maximum(magnitudes, _magnitudes(block))
    scale = _scale(tl.max(magnitudes, axis=0), inverse)
    tl.store(scales + row, scale)
    divisor, over = _as_divisor(scale)
    for start in range(0, n, BLOCK):
        mask = start + at < n
        block = tl.load(x + start + at, mask=mask, other=0).to(tl.float32)
        values = _quantized(block, divisor, over, q.dtype.element_ty)
        tl.store(q + start + at, values, mask=mask)


@triton.jit
def _scaled(product, scale, weight_scale, bias, columns, inside):
    """The scaled product, in float32 and in this order. `bias` is a pointer or None, read at `columns`."""
    result = product.to(tl.float32) * scale[:, None] * weight_scale[None, :]
    if bias is not None:
        result += tl.load(bias + columns, mask=inside, other=0).to(tl.float32)[None, :]
    return result


@triton.jit
def _scale_product(
    product, output, scales, weight_scales, bias, rows, columns,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """A program scales ROWS × COLUMNS numbers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    scale = tl.load(scales + row, mask=row < rows, other=0)
    weight_scale = tl.load(weight_scales + column, mask=column < columns, other=0)
    numbers = tl.load(product + at, mask=mask, other=0)
    result = _scaled(numbers, scale, weight_scale, bias, column, column < columns)
    tl.store(output + at, result.to(output.dtype.element_ty), mask=mask)


@triton.jit
def _int8_product(
    x, weight, output, scales, weight_scales, bias, rows, columns, inner, stride,
    EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, INNER: tl.constexpr,
):  # fmt: skip
    """A program computes a tile. Programs that run at the same time share rows and columns in the cache."""
    group: tl.constexpr = 8
    across = tl.cdiv(columns, COLUMNS)
    down = tl.cdiv(rows, ROWS)
    program = tl.program_id(0)
    first = program // (group * across) * group
    height = tl.minimum(down - first, group)
    within = program % (group * across)
    row = (first + within % height) * ROWS + tl.arange(0, ROWS)
    column = within // height * COLUMNS + tl.arange(0, COLUMNS)
    step = tl.arange(0, INNER)
    # Rows and columns beyond the end wrap around to the start and are not written, so loads need no mask.
    left = x + (row % rows).to(tl.int64)[:, None] * inner + step[None, :]
    right = weight + (column % columns).to(tl.int64)[None, :] * stride + step[:, None]
    product = tl.zeros([ROWS, COLUMNS], tl.int32)
    for start in range(0, inner, INNER):
        if EVEN:
            a, b = tl.load(left), tl.load(right)
        else:
            inside = step < inner - start
            a = tl.load(left, mask=inside[None, :], other=0)
            b = tl.load(right, mask=inside[:, None], other=0)
        product = tl.dot(a, b, product, out_dtype=tl.int32)
        left += INNER
        right += INNER
    scale = tl.load(scales + row, mask=row < rows, other=0)
    weight_scale = tl.load(weight_scales + column, mask=column < columns, other=0)
    result = _scaled(product, scale, weight_scale, bias, column, column < columns)
    at = row.to(tl.int64)[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(output + at, result.to(output.dtype.element_ty), mask=mask)
