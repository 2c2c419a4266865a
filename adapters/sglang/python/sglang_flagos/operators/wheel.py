"""Kernels of SGLang's wheel ``sgl_kernel``: its operators in ``torch.ops.sgl_kernel``, which CUDA serves.

Their libraries alone are loaded: the package imports more than these need.
"""

from __future__ import annotations

import logging
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flagos import _core
from flagos_serving.declaration import capability, decline, decline_others, device_type
from flagos_serving.references.experts import room_for

logger = logging.getLogger(__name__)


def _common() -> str:
    """The wheel has kernels with fast math for Hopper, and others for the rest."""
    return f"{'sm90' if capability() == (9, 0) else 'sm100'}/common_ops"


@cache
def missing() -> str | None:
    """Why the wheel's kernels cannot serve in this process; None when they can. Opens no device, and loads nothing."""
    return _missing(_common())


@cache
def attention_missing() -> str | None:
    """The same of FlashAttention 3, which the wheel has for capabilities 8 and 9. It ran on Hopper alone."""
    found = capability()
    if found is not None and found[0] != 9:
        return f"FlashAttention 3 is for devices of capability 9, and this one has {found[0]}"
    return _missing("flash_ops")


def _missing(name: str) -> str | None:
    if device_type() != "cuda":
        return f"sgl_kernel is for CUDA, and vendor {_core.vendor()} serves flagos here"
    if _library(name) is None:
        return f"SGLang's wheel of kernels is not installed (no module sgl_kernel with {name})"
    return None


def _library(name: str) -> Path | None:
    found = find_spec("sgl_kernel")
    if found is None or not found.submodule_search_locations:
        return None
    path = Path(next(iter(found.submodule_search_locations)), name)
    return next(iter(path.parent.glob(f"{path.name}.*")), None)


@cache
def _failure(name: str) -> str | None:
    """Loads a library, or returns why it cannot be loaded. It is tried once."""
    try:
        torch.ops.load_library(str(_library(name)))
    except OSError as error:
        return f"sgl_kernel's library cannot be loaded: {error}"
    return None


def _operators(name: str) -> Any:
    """The operators, with those of a library."""
    reason = _failure(name)
    if reason is not None:
        raise decline(reason)
    return torch.ops.sgl_kernel


def attention_loads() -> bool:
    """Whether the library of FlashAttention 3 can be loaded here; a warning says why not."""
    reason = _failure("flash_ops")
    if reason is not None:
        logger.warning("attention is not FlashAttention 3's: %s", reason)
    return reason is None


def align_experts(experts: Tensor, count: int, block: int) -> tuple[Tensor, Tensor, Tensor]:
    """See `flagos_serving.references.experts`."""
    room = (room_for(experts.numel(), count, block) + 3) // 4 * 4  # the kernel fills four at once
    blocks = (room + block - 1) // block
    places, of_blocks, total, sums = (
        torch.empty(size, dtype=torch.int32, device=experts.device)
        for size in (room, blocks, 1, count + 2)
    )
    _operators(_common()).moe_align_block_size(
        experts.int().contiguous(), count + 1, block, places, of_blocks, total, sums, True, False
    )
    return places, of_blocks, total


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    seqused_k: Tensor,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool,
    window_size: tuple[int, int],
    block_table: Tensor,
    softcap: float,
    q_descale: Tensor | None,
    k_descale: Tensor | None,
    v_descale: Tensor | None,
    **others: Any,
) -> None:
    """FlashAttention 3. See `flagos_serving.references.attention`."""
    decline_others("FlashAttention 3", others)
    if q.dtype not in (torch.float16, torch.bfloat16) or not q.dtype == k.dtype == v.dtype:
        raise decline(f"FlashAttention 3 takes float16 and bfloat16, not {q.dtype} over {k.dtype}")
    if not takes_heads(q.shape[-1], v.shape[-1]):
        raise decline(
            f"FlashAttention 3 has no kernel for heads of {q.shape[-1]} and {v.shape[-1]}"
        )
    _operators("flash_ops").fwd(
        *(q, k, v, None, None, None, out),
        *(cu_seqlens_q, None, None, None, seqused_k, max_seqlen_q, None, block_table),
        *(None, None, None, None, None, None, None, None),
        *(softmax_scale, causal, *window_size, 0, softcap or 0.0, False),
        *(None, 0, None, 0, None, None, False),
    )


def takes_heads(of_keys: int, of_values: int) -> bool:
    """Whether FlashAttention 3 has kernels for these numbers in a head, of keys and of values."""
    return of_keys == of_values and of_keys <= 256 and of_keys % 8 == 0
