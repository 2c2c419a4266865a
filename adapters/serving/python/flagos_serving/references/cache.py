"""Writing to the paged KV cache.

``reshape_and_cache`` has the signature of vLLM's ``triton_reshape_and_cache_flash``: key and value [tokens, KV heads,
dim] go to the slots of ``slot_mapping`` (int64 [tokens]; negative ones are left out) of key_cache and value_cache
[blocks, block size, KV heads, dim].

``store_kv_cache`` has places of single tokens: key and value [tokens, ...] go to the rows ``places`` (integers
[tokens]) of keys and values [places, ...], which have their types.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flagos_serving.declaration import decline


def _stored(x: Tensor, cache: Tensor, scale: Tensor) -> Tensor:
    if cache.element_size() > 1:
        return x.to(cache.dtype)
    if not cache.dtype.is_floating_point:
        raise decline("the reference of the cache's update does not know a cache of integers")
    limits = torch.finfo(cache.dtype)
    return (x.float() / scale.float()).clamp(limits.min, limits.max).to(cache.dtype)


def reshape_and_cache(
    key: Tensor,
    value: Tensor,
    key_cache: Tensor,
    value_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str,
    k_scale: Tensor,
    v_scale: Tensor,
) -> None:
    if key_cache.ndim != 4:
        raise decline("the reference of the cache's update takes caches of four dimensions")
    size = key_cache.shape[1]
    used = slot_mapping >= 0
    slots, tokens = slot_mapping[used], slot_mapping.shape[0]
    places = (slots // size, slots % size)
    key_cache[places] = _stored(key[:tokens][used], key_cache, k_scale)
    value_cache[places] = _stored(value[:tokens][used], value_cache, v_scale)


def store_kv_cache(
    key: Tensor, value: Tensor, keys: Tensor, values: Tensor, places: Tensor
) -> None:
    keys[places] = key
    values[places] = value
