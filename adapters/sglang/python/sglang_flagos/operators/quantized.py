"""Values of 8 bits and their products: see `flagos_serving.references`, ``layers`` and ``block_scaled``."""

from __future__ import annotations

from flagos_serving.references import block_scaled, layers
from sglang_flagos.engine import SGLANG

per_token_group_fp8_quant = SGLANG.declare(
    "per_token_group_fp8_quant", reference=layers.per_token_group_fp8_quant
)
static_scaled_fp8_quant = SGLANG.declare(
    "static_scaled_fp8_quant", reference=layers.static_scaled_fp8_quant
)
block_scaled_mm = SGLANG.declare("block_scaled_mm", reference=block_scaled.block_scaled_mm)
