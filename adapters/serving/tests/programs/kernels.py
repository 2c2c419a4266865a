"""The Triton kernels of `flagos_serving` beside their references: ``kernels.py`` reports what differs.

With TRITON_INTERPRET=1 they run by Triton's interpreter, else compiled for the device.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from flagos_serving import triton_kernels
from flagos_serving.references import cache, layers

TYPES = (torch.float32, torch.bfloat16)
# Kernel → the function whose arguments it has.
REFERENCES: dict[str, Callable[..., None]] = {
    "rms_norm": layers.rms_norm_rounded_once,
    "fused_add_rms_norm": layers.fused_add_rms_norm_rounded_once,
    "qk_norm": layers.qk_norm,
    "rotary_embedding": layers.rotary_embedding,
    "silu_and_mul": layers.silu_and_mul,
    "gelu_and_mul": layers.gelu_and_mul,
    "gelu_tanh_and_mul": layers.gelu_tanh_and_mul,
    "store_kv_cache": cache.store_kv_cache,
}


def norms(dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for shape in ((5, 128), (3, 1000), (2, 3, 64), (1, 8)):
        x, other = torch.randn(2, *shape).to(dtype)
        weight = torch.rand(shape[-1]).to(dtype)
        yield other, x, weight, 1e-6
        yield other.clone(), x.clone(), None, 1e-6
    wide = torch.randn(4, 300).to(dtype)  # rows with gaps
    yield torch.zeros(4, 100, dtype=dtype), wide[:, 100:200], torch.rand(100).to(dtype), 1e-6


def sums(dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for into, x, weight, epsilon in norms(dtype):
        if x.is_contiguous():
            yield x, into, weight, epsilon


def heads(dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor, Tensor, int, int]]:
    """Queries, keys and values as parts of one product, the size of a head and the number of keys'."""
    for size in (32, 80):
        for queries, keys in ((10, 2), (3, 3)):
            packed = torch.randn(3, (queries + 2 * keys) * size).to(dtype)
            parts = packed.split((queries * size, keys * size, keys * size), dim=-1)
            yield (*parts, size, keys)


def norms_of_heads(dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for query, key, _, size, _ in heads(dtype):
        yield query, key, *torch.rand(2, size).to(dtype), 1e-6


def rotations(dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for query, key, _, size, _ in heads(dtype):
        rotated = size // 2 if size == 80 else size
        angles = 6 * torch.rand(64, rotated // 2)
        table = torch.cat((angles.cos(), angles.sin()), dim=-1)
        positions = torch.randint(0, 64, (3,))
        for neox in (True, False):
            yield positions, query, key, size, table, neox
        yield positions, query, None, size, table, True, size - rotated, True


def activations(dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for rows, columns in ((3, 64), (2, 1500), (1, 8)):
        yield torch.zeros(rows, columns, dtype=dtype), torch.randn(rows, 2 * columns).to(dtype)


def writes(dtype: torch.dtype) -> Iterator[tuple[Any, ...]]:
    for _, key, value, size, count in heads(dtype):
        keys, values = torch.randn(2, 50, count, size).to(dtype)
        new = [x.view(3, count, size) for x in (key, value)]
        yield *new, keys, values, torch.randperm(50)[:3]


CASES: dict[str, Callable[[torch.dtype], Iterator[tuple[Any, ...]]]] = {
    "rms_norm": norms,
    "fused_add_rms_norm": sums,
    "qk_norm": norms_of_heads,
    "rotary_embedding": rotations,
    **dict.fromkeys(("silu_and_mul", "gelu_and_mul", "gelu_tanh_and_mul"), activations),
    "store_kv_cache": writes,
}


def moved(args: tuple[Any, ...], to: str, wide: bool = False) -> list[Any]:
    """Copies; views of one tensor stay views of one."""
    storages: dict[int, Tensor] = {}
    made = []
    for x in args:
        if not isinstance(x, Tensor):
            made.append(x)
            continue
        base = x if x._base is None else x._base
        if id(base) not in storages:
            there = base.to(to, copy=True)
            storages[id(base)] = there.double() if wide and there.is_floating_point() else there
        place = storages[id(base)]
        made.append(place.as_strided(x.shape, x.stride(), x.storage_offset()))
    return made


def differences(name: str, dtype: torch.dtype) -> Iterator[str]:
    for number, args in enumerate(CASES[name](dtype)):
        exact, found = moved(args, "cpu", wide=name != "store_kv_cache"), moved(args, "flagos")
        REFERENCES[name](*exact)
        getattr(triton_kernels, name)(*found)
        for place, (one, two) in enumerate(zip(exact, found, strict=True)):
            if not isinstance(one, Tensor):
                continue
            try:
                torch.testing.assert_close(two.cpu(), one.to(two.dtype))
            except AssertionError as error:
                yield f"{dtype}, case {number}, argument {place}: {' '.join(str(error).split())}"


if __name__ == "__main__":
    torch.manual_seed(0)
    found = {name: [d for dtype in TYPES for d in differences(name, dtype)] for name in CASES}
    declined = {}
    for what, call in {
        "rows": lambda: triton_kernels.rms_norm(
            torch.ones(1, 70000), torch.ones(1, 70000), None, 1e-6
        ),
        "types": lambda: triton_kernels.store_kv_cache(
            torch.ones(1, 1, 2).half(), torch.ones(1, 1, 2), *torch.ones(2, 3, 1, 2), torch.ones(1)
        ),
        "gaps": lambda: triton_kernels.silu_and_mul(torch.ones(4, 8).t(), torch.ones(8, 8)),
    }.items():
        try:
            call()
        except Exception as error:
            declined[what] = f"{type(error).__name__}: {error}"
    print("REPORT " + json.dumps({"differences": found, "declined": declined}))
