"""FlagGems' kernels for SGLang's operators, by name (`flagos_serving.flaggems`)."""

from __future__ import annotations

from flagos_serving.flaggems import FlagGems
from flagos_serving.verdicts import Verdicts
from sglang_flagos.engine import SGLANG

SERVES = {
    "sglang::rms_norm": "rms_norm",
    "sglang::fused_add_rms_norm": "fused_add_rms_norm",
    "sglang::rotary_embedding": "rotary_embedding",
    "sglang::silu_and_mul": "silu_and_mul",
    "sglang::gelu_and_mul": "gelu_and_mul",
    "sglang::gelu_tanh_and_mul": "gelu_tanh_and_mul",
    "sglang::fused_experts": "fused_experts",
}
FLAGGEMS = FlagGems(SERVES, Verdicts(SGLANG))
