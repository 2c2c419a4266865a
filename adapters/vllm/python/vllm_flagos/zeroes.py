"""New blocks of a cache as zeros, which models with states need: vLLM has a kernel of Triton for it alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


class BlockZeroer:
    """In the place of vLLM's `KVBlockZeroer`, over the caches themselves."""

    def __init__(
        self,
        device: torch.device,
        *,
        attn_groups_iter: Iterable[Any],
        kernel_block_sizes: list[int],
        static_forward_context: dict[str, Any],
        runner_only_attn_layers: set[str] | None = None,
        cache_dtype: str | None = None,
        num_blocks: int | None = None,
        **others: Any,
    ) -> None:
        """``num_blocks``: the scheduler's, of vLLM 0.33, whose caches begin with the dimension of blocks."""
        from vllm.v1.kv_cache_interface import AttentionSpec

        self._device = device
        # Each cache once, with the dimension of its blocks and how many of these the scheduler counts as one.
        self._caches: dict[tuple[int, torch.Size], tuple[Tensor, int, int]] = {}
        for group in attn_groups_iter:
            spec, number = group.kv_cache_spec, group.kv_cache_group_id
            if not isinstance(spec, AttentionSpec) or number >= len(kernel_block_sizes):
                continue
            size, dim = kernel_block_sizes[number], 0
            if num_blocks is None:
                dim = group.backend.get_kv_cache_block_dim(
                    size, spec.num_kv_heads, spec.head_size, cache_dtype_str=cache_dtype
                )
            for name in group.layer_names:
                cache = static_forward_context[name].kv_cache
                if name in (runner_only_attn_layers or ()) or not isinstance(cache, Tensor):
                    continue
                ratio = spec.block_size // size
                if num_blocks is not None:
                    if group.kernel_block_stride:
                        cache = group.map_kv_cache_to_manager_blocks(cache, num_blocks)
                    ratio = cache.shape[0] // num_blocks
                self._caches[cache.data_ptr(), cache.shape] = (cache, dim, ratio)

    def zero_block_ids(self, block_ids: list[int]) -> None:
        """Zeros in these blocks of every cache."""
        if not block_ids:
            return
        for cache, dim, ratio in self._caches.values():
            blocks = [n * ratio + part for n in block_ids for part in range(ratio)]
            at = torch.tensor(blocks, device=self._device)
            whole = cache.view(torch.uint8) if cache.element_size() == 1 else cache
            whole.index_fill_(dim, at, 0)
