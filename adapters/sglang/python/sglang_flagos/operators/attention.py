"""Attention over SGLang's pool of tokens: `flagos_serving.references.attention` with blocks of one token."""

from __future__ import annotations

from flagos_serving.references import attention as references
from sglang_flagos.engine import SGLANG

paged_attention = SGLANG.declare("paged_attention", reference=references.paged_attention)
