"""Norms, rotations and activations: see `flagos_serving.references.layers`.

SGLang's kernels of norms multiply by the weight before they round, and `rms_norm` of vLLM after that.
"""

from __future__ import annotations

from flagos_serving.references import layers as references
from sglang_flagos.engine import SGLANG
from sglang_flagos.operators.flaggems import FLAGGEMS

rms_norm = SGLANG.declare("rms_norm", reference=references.rms_norm_rounded_once)
fused_add_rms_norm = SGLANG.declare(
    "fused_add_rms_norm", reference=references.fused_add_rms_norm_rounded_once
)
rotary_embedding = SGLANG.declare("rotary_embedding", reference=references.rotary_embedding)
silu_and_mul = SGLANG.declare("silu_and_mul", reference=references.silu_and_mul)
gelu_and_mul = SGLANG.declare("gelu_and_mul", reference=references.gelu_and_mul)
gelu_tanh_and_mul = SGLANG.declare("gelu_tanh_and_mul", reference=references.gelu_tanh_and_mul)

for _operator in (
    rms_norm,
    fused_add_rms_norm,
    rotary_embedding,
    silu_and_mul,
    gelu_and_mul,
    gelu_tanh_and_mul,
):
    FLAGGEMS.offer(_operator, _operator.name.partition("::")[2])
