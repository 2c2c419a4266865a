"""Which of TransformerEngine's fused attentions serves: its modules ask before they call `fused_attn_fwd`."""

from __future__ import annotations

import sys
from typing import Any

import torch

from flagos._core import UnsupportedError
from te_fl.operators.arguments import torch_dtype
from te_fl.operators.attention_call import understand

_NATIVE = "transformer_engine_torch"
_ARBITRARY = 1


def get_fused_attn_backend(
    is_training: bool,
    q_dtype: Any,
    kv_dtype: Any,
    qkv_layout: Any,
    bias_type: Any,
    attn_mask_type: Any,
    softmax_type: Any,
    p_dropout: float,
    num_attn_heads: int,
    num_gqa_groups: int,
    max_seqlen_q: int,
    max_seqlen_kv: int,
    head_dim_qk: int,
    head_dim_v: int,
    window_size_left: int,
    window_size_right: int,
    return_max_logit: bool = False,
    cuda_graph: bool = False,
    deterministic: bool = False,
) -> Any:
    """The backend of sequences of any length, for what `fused_attn_fwd` serves: float16 and bfloat16.

    The order of the last arguments is 2.14's. Raises UnsupportedError for a call that `fused_attn_fwd` declines, so
    that the next implementation answers for its own kernels.
    """
    dtypes = {torch_dtype(q_dtype), torch_dtype(kv_dtype)}
    if not dtypes <= {torch.float16, torch.bfloat16}:
        raise UnsupportedError("te_fl's fused attention takes float16 and bfloat16")
    if (is_training and p_dropout > 0) or return_max_logit:
        raise UnsupportedError(
            "te_fl's fused attention has no dropout and returns no maximum of logits"
        )
    nothing = (None, None)
    understand(
        qkv_layout, bias_type, attn_mask_type, softmax_type, 1.0, None, False, nothing, nothing, None, ()
    )  # fmt: skip
    # The caller compares with the enumerators of the module that it has; without one, with those of `te_fl.core`.
    backends = getattr(sys.modules.get(_NATIVE), "NVTE_Fused_Attn_Backend", None)
    return _ARBITRARY if backends is None else backends.NVTE_F16_arbitrary_seqlen
