"""Writing to SGLang's pool of tokens: see `flagos_serving.references.cache`."""

from __future__ import annotations

from flagos_serving.references import cache as references
from sglang_flagos.engine import SGLANG, triton_kernel

store_kv_cache = SGLANG.declare(
    "store_kv_cache",
    reference=references.store_kv_cache,
    triton=triton_kernel("store_kv_cache"),
)
