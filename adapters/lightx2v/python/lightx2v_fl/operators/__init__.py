"""LightX2V's operators, as operators of the plan.

    >>> from lightx2v_fl.operators import rms_norm
    >>> rms_norm(x, weight, 1e-6)

Routes, ``flagos explain`` and counters call an operator ``lightx2v::<name>``. Its implementations are
FlagGems' kernel, torch's own (the vendor's), for some operators Triton kernels of this package, and a reference that
follows the formula in float32. They take and return tensors of any torch device: flagos, or the chip's own.
"""

from lightx2v_fl.operators.attention import attention, attention_with_lse
from lightx2v_fl.operators.linear import linear
from lightx2v_fl.operators.moe import moe
from lightx2v_fl.operators.norm import layer_norm, rms_norm
from lightx2v_fl.operators.quantized import fp8_linear, int8_linear
from lightx2v_fl.operators.rope import rope

__all__ = [
    "attention",
    "attention_with_lse",
    "fp8_linear",
    "int8_linear",
    "layer_norm",
    "linear",
    "moe",
    "rms_norm",
    "rope",
]
