"""Triton kernels of the operators that engines compile from CUDA: norms, rotations, activations, writes to the cache.

They compute in float32 and round once, where they write, as those kernels do. Their signatures are those of
`flagos_serving.references`. Importing this module imports Triton.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from torch import Tensor

from flagos_serving.declaration import decline

_WIDEST = 65536  # columns of a row that one program reduces
_TILE = 2048  # elements of a tile that one warp takes in a few loads


def _fits(columns: int) -> int:
    """The power of two that holds a row. Declines rows that no program holds."""
    if columns > _WIDEST:
        raise decline(
            f"the Triton kernel reduces rows of at most {_WIDEST} columns, not of {columns}"
        )
    return int(triton.next_power_of_2(columns))


def _warps(elements: int) -> int:
    return max(1, min(16, elements // 512))


def _rows(x: Tensor) -> Tensor:
    """x as rows of its last dimension: a view, or a copy where the strides are not those of rows."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x
    return x.reshape(-1, x.shape[-1])


def _in_place(x: Tensor, what: str) -> Tensor:
    """x as rows, for writing. Declines what has no such view."""
    if x.dim() == 2 and x.stride(1) == 1:
        return x
    if not x.is_contiguous():
        raise decline(f"the Triton kernel writes {what} of contiguous rows alone")
    return x.view(-1, x.shape[-1])


# ------------------------------------------------------------------------------------------------- norms


@triton.jit
def _rms_norm(
    out,
    x,
    weight,
    rows,
    columns,
    out_stride,
    x_stride,
    epsilon,
    WEIGHTED: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, COLUMNS)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    place = row.to(tl.int64)[:, None]
    wide = tl.load(x + place * x_stride + column[None, :], mask=inside, other=0.0).to(tl.float32)
    made = wide * tl.rsqrt(tl.sum(wide * wide, axis=1) / columns + epsilon)[:, None]
    if WEIGHTED:
        factor = tl.load(weight + column, mask=column < columns, other=0.0)
        made = made * factor.to(tl.float32)[None, :]
    tl.store(out + place * out_stride + column[None, :], made.to(out.dtype.element_ty), mask=inside)


def rms_norm(result: Tensor, x: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """See `flagos_serving.references.layers.rms_norm_rounded_once`."""
    given, into = _rows(x), _in_place(result, "norms")
    columns = _fits(x.shape[-1])
    rows = max(1, min(8, _TILE // columns))
    _rms_norm[(triton.cdiv(len(given), rows),)](
        into,
        given,
        weight,
        len(given),
        x.shape[-1],
        into.stride(0),
        given.stride(0),
        epsilon,
        WEIGHTED=weight is not None,
        ROWS=rows,
        COLUMNS=columns,
        num_warps=_warps(rows * columns),
    )


@triton.jit
def _fused_add_rms_norm(
    x,
    residual,
    weight,
    columns,
    x_stride,
    residual_stride,
    epsilon,
    WEIGHTED: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    inside = column < columns
    kept = residual + row * residual_stride + column
    total = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    total += tl.load(kept, mask=inside, other=0.0).to(tl.float32)
    tl.store(kept, total.to(residual.dtype.element_ty), mask=inside)
    made = total * tl.rsqrt(tl.sum(total * total, axis=0) / columns + epsilon)
    if WEIGHTED:
        made *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(x + row * x_stride + column, made.to(x.dtype.element_ty), mask=inside)


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """See `flagos_serving.references.layers.fused_add_rms_norm_rounded_once`."""
    given, kept = _in_place(x, "norms"), _in_place(residual, "sums")
    columns = _fits(x.shape[-1])
    _fused_add_rms_norm[(len(given),)](
        given,
        kept,
        weight,
        x.shape[-1],
        given.stride(0),
        kept.stride(0),
        epsilon,
        WEIGHTED=weight is not None,
        COLUMNS=columns,
        num_warps=_warps(columns),
    )


@triton.jit
def _qk_norm(
    query,
    key,
    query_weight,
    key_weight,
    query_heads,
    heads,
    size,
    query_stride,
    key_stride,
    epsilon,
    HEADS: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    column = tl.arange(0, COLUMNS)
    fits = (column < size)[None, :]
    of_query = (head < query_heads)[:, None] & fits
    of_key = ((head >= query_heads) & (head < heads))[:, None] & fits
    queries = query + token * query_stride + head[:, None] * size + column[None, :]
    keys = key + token * key_stride + (head - query_heads)[:, None] * size + column[None, :]
    first = tl.load(queries, mask=of_query, other=0.0).to(tl.float32)
    wide = first + tl.load(keys, mask=of_key, other=0.0).to(tl.float32)
    made = wide * tl.rsqrt(tl.sum(wide * wide, axis=1) / size + epsilon)[:, None]
    by_query = tl.load(query_weight + column, mask=column < size, other=0.0).to(tl.float32)
    by_key = tl.load(key_weight + column, mask=column < size, other=0.0).to(tl.float32)
    tl.store(queries, (made * by_query[None, :]).to(query.dtype.element_ty), mask=of_query)
    tl.store(keys, (made * by_key[None, :]).to(key.dtype.element_ty), mask=of_key)


def qk_norm(
    query: Tensor, key: Tensor, query_weight: Tensor, key_weight: Tensor, epsilon: float
) -> None:
    """See `flagos_serving.references.layers.qk_norm`."""
    size = query_weight.shape[0]
    queries, keys = _in_place(query, "queries"), _in_place(key, "keys")
    of_query = queries.shape[1] // size
    total = of_query + keys.shape[1] // size
    columns = _fits(size)
    heads = max(1, min(8, _TILE // columns))
    _qk_norm[(len(queries), triton.cdiv(total, heads))](
        queries,
        keys,
        query_weight,
        key_weight,
        of_query,
        total,
        size,
        queries.stride(0),
        keys.stride(0),
        epsilon,
        HEADS=heads,
        COLUMNS=columns,
        num_warps=_warps(heads * columns),
    )


# --------------------------------------------------------------------------------------------- rotations


@triton.jit
def _rotary_embedding(
    positions,
    query,
    key,
    cache,
    query_heads,
    heads,
    size,
    pairs,
    offset,
    query_stride,
    key_stride,
    cache_stride,
    NEOX: tl.constexpr,
    INVERSE: tl.constexpr,
    HEADS: tl.constexpr,
    PAIRS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)
    pair = tl.arange(0, PAIRS)
    row = cache + tl.load(positions + token).to(tl.int64) * cache_stride
    cos = tl.load(row + pair, mask=pair < pairs, other=0.0).to(tl.float32)[None, :]
    sin = tl.load(row + pairs + pair, mask=pair < pairs, other=0.0).to(tl.float32)[None, :]
    if INVERSE:
        sin = -sin
    if NEOX:
        one, other = offset + pair, offset + pairs + pair
    else:
        one, other = offset + 2 * pair, offset + 2 * pair + 1
    fits = (pair < pairs)[None, :]
    of_query = (head < query_heads)[:, None] & fits
    of_key = ((head >= query_heads) & (head < heads))[:, None] & fits
    queries = query + token * query_stride + head[:, None] * size
    keys = key + token * key_stride + (head - query_heads)[:, None] * size
    first = tl.load(queries + one[None, :], mask=of_query, other=0.0).to(tl.float32)
    first += tl.load(keys + one[None, :], mask=of_key, other=0.0).to(tl.float32)
    second = tl.load(queries + other[None, :], mask=of_query, other=0.0).to(tl.float32)
    second += tl.load(keys + other[None, :], mask=of_key, other=0.0).to(tl.float32)
    here = (first * cos - second * sin).to(query.dtype.element_ty)
    there = (second * cos + first * sin).to(query.dtype.element_ty)
    tl.store(queries + one[None, :], here, mask=of_query)
    tl.store(keys + one[None, :], here, mask=of_key)
    tl.store(queries + other[None, :], there, mask=of_query)
    tl.store(keys + other[None, :], there, mask=of_key)


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    """See `flagos_serving.references.layers.rotary_embedding`."""
    tokens = positions.numel()
    queries = _in_place(query.view(tokens, -1), "queries")
    keys = queries if key is None else _in_place(key.view(tokens, -1), "keys")
    if keys.dtype != queries.dtype or positions.dim() != 1 or cos_sin_cache.stride(-1) != 1:
        raise decline(
            "the Triton kernel rotates queries and keys of one type, by one position a token"
        )
    of_query = queries.shape[1] // head_size
    total = of_query + (0 if key is None else keys.shape[1] // head_size)
    pairs = cos_sin_cache.shape[-1] // 2
    columns = _fits(pairs)
    heads = max(1, min(8, _TILE // columns))
    _rotary_embedding[(tokens, triton.cdiv(total, heads))](
        positions,
        queries,
        keys,
        cos_sin_cache,
        of_query,
        total,
        head_size,
        pairs,
        rope_dim_offset,
        queries.stride(0),
        keys.stride(0),
        cos_sin_cache.stride(0),
        NEOX=is_neox,
        INVERSE=inverse,
        HEADS=heads,
        PAIRS=columns,
        num_warps=_warps(2 * heads * columns),
    )


# ------------------------------------------------------------------------------------------- activations


@triton.jit
def _gated(
    out,
    x,
    columns,
    out_stride,
    x_stride,
    GATE: tl.constexpr,
    COLUMNS: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < columns
    gate = tl.load(x + row * x_stride + column, mask=inside, other=0.0).to(tl.float32)
    value = tl.load(x + row * x_stride + columns + column, mask=inside, other=0.0).to(tl.float32)
    if GATE == "silu":
        gate = gate * tl.sigmoid(gate)
    elif GATE == "gelu":
        gate = 0.5 * gate * (1.0 + tl.erf(gate * 0.7071067811865476))
    else:  # gelu by tanh(z), which is 2 · sigmoid(2 z) - 1
        inner = 0.7978845608028654 * (gate + 0.044715 * gate * gate * gate)
        gate = gate * tl.sigmoid(2.0 * inner)
    tl.store(out + row * out_stride + column, (gate * value).to(out.dtype.element_ty), mask=inside)


def _gated_by(gate: str) -> Any:
    def serve(result: Tensor, x: Tensor) -> None:
        given, into = _rows(x), _in_place(result, "activations")
        columns = into.shape[1]
        block = min(1024, int(triton.next_power_of_2(columns)))
        _gated[(len(given), triton.cdiv(columns, block))](
            into,
            given,
            columns,
            into.stride(0),
            given.stride(0),
            GATE=gate,
            COLUMNS=block,
            num_warps=_warps(2 * block),
        )

    serve.__doc__ = f"See `flagos_serving.references.layers.{gate}_and_mul`."
    return serve


silu_and_mul = _gated_by("silu")
gelu_and_mul = _gated_by("gelu")
gelu_tanh_and_mul = _gated_by("gelu_tanh")


# ------------------------------------------------------------------------------------------------- cache


@triton.jit
def _store(
    key,
    value,
    keys,
    values,
    places,
    key_columns,
    value_columns,
    key_stride,
    value_stride,
    keys_stride,
    values_stride,
    COLUMNS: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    place = tl.load(places + token).to(tl.int64)
    taken = tl.load(key + token * key_stride + column, mask=column < key_columns)
    tl.store(keys + place * keys_stride + column, taken, mask=column < key_columns)
    taken = tl.load(value + token * value_stride + column, mask=column < value_columns)
    tl.store(values + place * values_stride + column, taken, mask=column < value_columns)


def store_kv_cache(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, places: Tensor
) -> None:
    """See `flagos_serving.references.cache.store_kv_cache`."""
    if key.dtype != keys.dtype or value.dtype != values.dtype:
        raise decline("the Triton kernel writes values of the cache's type alone")
    given, also = (_rows(x.flatten(1)) for x in (key, value))
    into, as_well = (_in_place(x.flatten(1), "a cache") for x in (keys, values))
    if into.data_ptr() != keys.data_ptr() or as_well.data_ptr() != values.data_ptr():
        raise decline("the Triton kernel writes to caches of contiguous rows alone")
    widest = max(given.shape[1], also.shape[1])
    block = min(1024, int(triton.next_power_of_2(widest)))
    _store[(len(given), triton.cdiv(widest, block))](
        given,
        also,
        into,
        as_well,
        places,
        given.shape[1],
        also.shape[1],
        given.stride(0),
        also.stride(0),
        into.stride(0),
        as_well.stride(0),
        COLUMNS=block,
        num_warps=_warps(2 * block),
    )
