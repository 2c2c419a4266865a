"""The attention backend where Triton reaches the device: SGLang's own for Triton, over operators of the plan."""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.attention.triton_backend import TritonAttnBackend

from sglang_flagos import operators


class FlagosTritonAttention(TritonAttnBackend):
    """``sglang::decode_attention`` and ``sglang::extend_attention``, in graphs too."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.decode_attention_fwd = operators.decode_attention
        self.extend_attention_fwd = operators.extend_attention
