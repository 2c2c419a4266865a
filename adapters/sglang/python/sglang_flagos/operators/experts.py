"""Mixture of experts over packed weights: see `flagos_serving.references.experts`."""

from __future__ import annotations

from flagos_serving.declaration import deferred
from flagos_serving.references import experts as references
from sglang_flagos.engine import SGLANG
from sglang_flagos.operators.flaggems import FLAGGEMS

fused_experts = SGLANG.declare(
    "fused_experts",
    reference=references.fused_experts,
    triton=deferred("sglang_flagos.operators.triton_experts", "fused_experts"),
)
FLAGGEMS.offer(fused_experts, "fused_experts")
