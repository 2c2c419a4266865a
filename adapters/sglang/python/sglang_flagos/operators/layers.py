"""Norms, rotations and activations: see `flagos_serving.references.layers`.

SGLang's kernels of norms multiply by the weight before they round, and `rms_norm` of vLLM after that.
"""

from __future__ import annotations

from flagos import Operator
from flagos_serving.declaration import Implementation
from flagos_serving.references import layers as references
from sglang_flagos.engine import SGLANG, triton_kernel
from sglang_flagos.operators.flaggems import FLAGGEMS


def _declare(name: str, reference: Implementation) -> Operator:
    operator = SGLANG.declare(name, reference=reference, triton=triton_kernel(name))
    FLAGGEMS.offer(operator, name)
    return operator


rms_norm = _declare("rms_norm", references.rms_norm_rounded_once)
fused_add_rms_norm = _declare("fused_add_rms_norm", references.fused_add_rms_norm_rounded_once)
qk_norm = _declare("qk_norm", references.qk_norm)
rotary_embedding = _declare("rotary_embedding", references.rotary_embedding)
silu_and_mul = _declare("silu_and_mul", references.silu_and_mul)
gelu_and_mul = _declare("gelu_and_mul", references.gelu_and_mul)
gelu_tanh_and_mul = _declare("gelu_tanh_and_mul", references.gelu_tanh_and_mul)
