"""The attention backend where Triton reaches the device: SGLang's own for Triton, over operators of the plan."""

from __future__ import annotations

from typing import Any

import torch
from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
from sglang.srt.layers.radix_attention import RadixAttention

from sglang_flagos import operators


class FlagosTritonAttention(TritonAttnBackend):
    """``sglang::decode_attention`` and ``sglang::extend_attention``, in graphs too."""

    def __init__(self, runner: Any) -> None:
        super().__init__(runner)
        self.decode_attention_fwd = operators.decode_attention
        self.extend_attention_fwd = operators.extend_attention
        # A layer's window does not count the query's own token. Prompts have a mask that says so; decoding sees the
        # tokens that are listed for it, of which upstream lists one too few, and none where the model does not name
        # the window of its layers.
        layers = (each for each in runner.model.modules() if isinstance(each, RadixAttention))
        window = max((each.sliding_window_size for each in layers), default=-1)
        if window > -1:
            self.sliding_window_size = window + 1
            self.window_kv_indptr = torch.zeros_like(self.kv_indptr)
