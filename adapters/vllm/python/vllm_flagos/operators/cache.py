"""Writing to the paged KV cache.

``reshape_and_cache`` is `flagos_serving.references.cache`'s. ``slot_mapping`` is a launch of vLLM's kernel of that
name: for each token the slot of its position.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import cache as reference
from vllm_flagos.kernels import wheel
from vllm_flagos.launches import launch
from vllm_flagos.vllm import VLLM


def _vllm_c(*args: Any) -> None:
    torch.ops._C_cache_ops.reshape_and_cache_flash(*args)


reshape_and_cache = VLLM.declare(
    "reshape_and_cache",
    reference=reference.reshape_and_cache,
    triton=VLLM.function(
        "v1.attention.ops.triton_reshape_and_cache_flash", "triton_reshape_and_cache_flash"
    ),
    vllm_c=(_vllm_c, wheel.missing("_C_cache_ops")),
)


def _slots_reference(
    grid: Any,
    num_tokens: int,
    max_num_tokens: int,
    query_start_loc: Tensor,
    positions: Tensor,
    block_table: Tensor,
    block_table_stride: int,
    *places: Any,
    KV_CACHE_BLOCK_SIZE: int,
    BLOCKS_PER_KV_BLOCK: int = 1,
    TOTAL_CP_WORLD_SIZE: int,
    PAD_ID: int,
    **_settings: Any,
) -> None:
    """``places`` are the slots; before them vLLM 0.26 has the size of attention's blocks, of which the cache's may have
    several."""
    *block_sizes, slots = places
    block_size = block_sizes[0] if block_sizes else KV_CACHE_BLOCK_SIZE
    if TOTAL_CP_WORLD_SIZE != 1:
        raise decline("the reference of the slot mapping does not know context parallelism")
    slots[num_tokens:max_num_tokens] = PAD_ID
    counts = (query_start_loc[1:] - query_start_loc[:-1]).long()
    rows = torch.repeat_interleave(torch.arange(len(counts), device=slots.device), counts)
    begin = int(query_start_loc[0])
    part = slice(begin, begin + len(rows))
    place = positions[part]
    within = place % KV_CACHE_BLOCK_SIZE
    column = place // KV_CACHE_BLOCK_SIZE * BLOCKS_PER_KV_BLOCK + within // block_size
    blocks = block_table[rows, column].long()
    slots[part] = blocks * block_size + within % block_size


slot_mapping = VLLM.declare(
    "slot_mapping",
    reference=_slots_reference,
    triton=launch("slot_mapping"),
)
