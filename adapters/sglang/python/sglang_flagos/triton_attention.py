"""The attention backend where Triton reaches the device: SGLang's own for Triton, over operators of the plan."""

from __future__ import annotations

from typing import Any

from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import RadixAttention

from sglang_flagos import operators


class FlagosTritonAttention(TritonAttnBackend):
    """``sglang::decode_attention`` and ``sglang::extend_attention``, in graphs too."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.decode_attention_fwd = operators.decode_attention
        self.extend_attention_fwd = operators.extend_attention
        if runner.sliding_window_size is not None:
            # A layer's window does not count the query's own token. Prompts have a mask that says so; decoding
            # sees the tokens that are listed for it, and upstream lists one too few.
            layers = (each for each in runner.model.modules() if isinstance(each, RadixAttention))
            self.sliding_window_size = 1 + max(each.sliding_window_size for each in layers)
