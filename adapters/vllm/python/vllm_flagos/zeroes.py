"""New blocks of a cache as zeros, which models with states need: vLLM has a kernel of Triton for it alone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from vllm.v1.kv_cache_interface import FullAttentionSpec


class BlockZeroer:
    """In the place of vLLM's `KVBlockZeroer`, over the caches themselves."""

    def __init__(
        self,
        device: torch.device,
        pin_memory: bool,
        attn_groups_iter: Iterable[Any],
        kernel_block_sizes: list[int],
        cache_dtype: str,
        static_forward_context: dict[str, Any],
        runner_only_attn_layers: set[str] | None = None,
        max_concurrency: int = 1,
    ) -> None:
        self._device = device
        # Each cache once, with the dimension of its blocks and how many of these the scheduler counts as one.
        self._caches: dict[int, tuple[Tensor, int, int]] = {}
        for group in attn_groups_iter:
            spec, number = group.kv_cache_spec, group.kv_cache_group_id
            if not isinstance(spec, FullAttentionSpec) or number >= len(kernel_block_sizes):
                continue
            size = kernel_block_sizes[number]
            dim = group.backend.get_kv_cache_block_dim(
                size, spec.num_kv_heads, spec.head_size, cache_dtype_str=cache_dtype
            )
            for name in group.layer_names:
                cache = static_forward_context[name].kv_cache
                if name not in (runner_only_attn_layers or ()) and isinstance(cache, Tensor):
                    self._caches[cache.data_ptr()] = (cache, dim, spec.block_size // size)

    def zero_block_ids(self, block_ids: list[int]) -> None:
        """Zeros in these blocks of every cache."""
        if not block_ids:
            return
        for cache, dim, ratio in self._caches.values():
            blocks = [n * ratio + part for n in block_ids for part in range(ratio)]
            at = torch.tensor(blocks, device=self._device)
            whole = cache.view(torch.uint8) if cache.element_size() == 1 else cache
            whole.index_fill_(dim, at, 0)
