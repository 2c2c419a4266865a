"""The tokens of `fused_experts` in blocks of one expert each: see `flagos_serving.references.experts`."""

from __future__ import annotations

from flagos_serving.references import experts as references
from sglang_flagos.engine import SGLANG
from sglang_flagos.operators import wheel

align_experts = SGLANG.declare(
    "align_experts",
    reference=references.align_experts,
    sgl_kernel=(wheel.align_experts, wheel.missing()),
)
