"""Masks of structured output.

``apply_token_bitmask(logits, mask)`` writes -inf to the logits [requests, tokens] whose bit in mask is 0, where mask is
int32 [requests, words], 32 tokens in a word from its lowest bit on.
"""

from __future__ import annotations

from flagos_serving.references import grammar as references
from sglang_flagos.engine import SGLANG

apply_token_bitmask = SGLANG.declare(
    "apply_token_bitmask",
    reference=references.apply_token_bitmask,
    triton=SGLANG.function("kernels.ops.grammar.bitmask_ops", "apply_token_bitmask_inplace_triton"),
)
