"""The allocators of the cache's places, without Triton where it does not reach the device."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator, alloc_extend_naive
from sglang.srt.mem_cache.allocator.token import TokenToKVPoolAllocator
from torch import Tensor

from sglang_flagos.engine import triton_missing


class FlagosPagedAllocator(PagedTokenToKVPoolAllocator):
    """Pages by SGLang's own loop over the requests, on the CPU, where the lengths are known."""

    free_pages: Tensor

    def alloc_extend(
        self,
        prefix_lens: Tensor,
        prefix_lens_cpu: Tensor,
        seq_lens: Tensor,
        seq_lens_cpu: Tensor,
        last_loc: Tensor,
        extend_num_tokens: int,
        num_new_pages: int | None = None,
    ) -> Tensor | None:
        """The places of new tokens of prompts, or None where there are too few."""
        size = self.page_size
        whole = (seq_lens_cpu + size - 1) // size - (prefix_lens_cpu + size - 1) // size
        pages = self._take(int(whole.sum()))
        if pages is None:
            return None
        places = torch.empty(extend_num_tokens, dtype=torch.int64)
        alloc_extend_naive(
            prefix_lens_cpu, seq_lens_cpu, last_loc.cpu(), pages.cpu(), places, size, "cpu"
        )
        return places.to(self.device)

    def alloc_decode(
        self, seq_lens: Tensor, seq_lens_cpu: Tensor, last_loc: Tensor
    ) -> Tensor | None:
        """A place for a token of each request, or None where there are too few."""
        begins = (seq_lens_cpu - 1) % self.page_size == 0
        pages = self._take(int(begins.sum()))
        if pages is None:
            return None
        places = (last_loc + 1).to(torch.int64)
        if len(pages):
            places[begins.nonzero().flatten().to(self.device)] = pages * self.page_size
        return places

    def _take(self, count: int) -> Tensor | None:
        if self.need_sort and count > len(self.free_pages):
            self.merge_and_sort_free()
        free: Tensor = self.free_pages
        if count > len(free):
            return None
        self.free_pages = free[count:]
        return free[:count]


def allocator(
    size: int, page_size: int, dtype: Any, device: Any, kvcache: Any, need_sort: bool
) -> Any:
    """An allocator for pages of this size. SGLang asks platforms for one class for every size."""
    if page_size == 1:
        return TokenToKVPoolAllocator(size, dtype, device, kvcache, need_sort)
    paged = PagedTokenToKVPoolAllocator if triton_missing() is None else FlagosPagedAllocator
    return paged(size, page_size, dtype, device, kvcache, need_sort)
