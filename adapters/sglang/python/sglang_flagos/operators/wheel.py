"""Kernels of SGLang's wheel ``sgl_kernel``: its operators in ``torch.ops.sgl_kernel``, which CUDA serves.

Their library alone is loaded: the package imports more than these need.
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flagos import _core
from flagos_serving.declaration import capability, decline, device_type
from flagos_serving.references.experts import room_for


@cache
def missing() -> str | None:
    """Why the wheel's kernels cannot serve in this process; None when they can. Opens no device, and loads nothing."""
    if device_type() != "cuda":
        return f"sgl_kernel is for CUDA, and vendor {_core.vendor()} serves flagos here"
    if _library() is None:
        return "SGLang's wheel of kernels is not installed (no module sgl_kernel with common_ops)"
    return None


def _library() -> Path | None:
    """The library for this device: the wheel has one with fast math for Hopper, and one for all others."""
    found = find_spec("sgl_kernel")
    if found is None or not found.submodule_search_locations:
        return None
    kind = "sm90" if capability() == (9, 0) else "sm100"
    folder = Path(next(iter(found.submodule_search_locations)))
    return next(iter((folder / kind).glob("common_ops.*")), None)


@cache
def _operators() -> Any:
    try:
        torch.ops.load_library(str(_library()))
    except OSError as error:
        raise decline(f"sgl_kernel's library cannot be loaded: {error}") from error
    return torch.ops.sgl_kernel


def align_experts(experts: Tensor, count: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """See `flagos_serving.references.experts`."""
    room = room_for(experts.numel(), count, block)
    blocks = (room + block - 1) // block
    places, of_blocks, total, sums = (
        torch.empty(size, dtype=torch.int32, device=experts.device)
        for size in (room, blocks, 1, count + 2)
    )
    _operators().moe_align_block_size(
        experts.int(), count + 1, block, places, of_blocks, total, sums, True, False
    )
    return places, of_blocks, total


def rms_norm(result: Tensor, x: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """See `flagos_serving.references.layers.rms_norm_rounded_once`."""
    _operators().rmsnorm(result, *_normed(x, weight, result), epsilon, False)


def fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float) -> None:
    """See `flagos_serving.references.layers.fused_add_rms_norm_rounded_once`."""
    given, scale = _normed(x, weight, residual)
    _operators().fused_add_rmsnorm(given, residual, scale, epsilon, False)


def _normed(x: Tensor, weight: Tensor | None, other: Tensor) -> tuple[Tensor, Tensor]:
    if weight is None or x.dim() != 2 or not (x.is_contiguous() and other.is_contiguous()):
        raise decline("sgl_kernel norms contiguous rows, with a weight")
    if x.dtype not in (torch.float16, torch.bfloat16):
        raise decline(f"sgl_kernel norms values of float16 and bfloat16, not of {x.dtype}")
    return x, weight


def silu_and_mul(out: Tensor, x: Tensor) -> None:
    """See `flagos_serving.references.layers`."""
    _gated("silu_and_mul", out, x)


def gelu_and_mul(out: Tensor, x: Tensor) -> None:
    """See `flagos_serving.references.layers`."""
    _gated("gelu_and_mul", out, x)


def gelu_tanh_and_mul(out: Tensor, x: Tensor) -> None:
    """See `flagos_serving.references.layers`."""
    _gated("gelu_tanh_and_mul", out, x)


def _gated(name: str, out: Tensor, x: Tensor) -> None:
    if out.shape[-1] * out.element_size() % 16 or not (x.is_contiguous() and out.is_contiguous()):
        raise decline("sgl_kernel takes contiguous rows of gates and values of 16 bytes each")
    if x.dtype not in (torch.float16, torch.bfloat16):
        raise decline(f"sgl_kernel takes float16 and bfloat16, not {x.dtype}")
    getattr(_operators(), name)(out, x)
