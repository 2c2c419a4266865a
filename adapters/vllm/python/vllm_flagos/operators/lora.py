"""Low-rank adapters over a batch in which each token has an adapter of its own, or none: see
`flagos_serving.references.lora`. vLLM's own torch version reads the last adapter for a token without one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import lora as references
from vllm_flagos.vllm import VLLM


def _vllms(module: str, name: str) -> Callable[..., None]:
    """vLLM's Triton kernel, for the calls that it takes."""
    kernel = VLLM.function(f"lora.ops.triton_ops.{module}", name)

    def serve(x: Tensor, weights: Sequence[Tensor], y: Tensor, *others: Any, **more: Any) -> None:
        halves = (torch.float16, torch.bfloat16)
        if any(w.dtype not in halves for w in weights) or (
            name == "_lora_shrink" and x.dtype not in halves
        ):
            raise decline("vLLM's LoRA kernels take weights of float16 and bfloat16 alone")
        if others[1] is None:
            raise decline("vLLM's LoRA kernels take tokens sorted by adapter")
        kernel(x, weights, y, *others, **more)

    return serve


lora_shrink = VLLM.declare(
    "lora_shrink", reference=references.lora_shrink, triton=_vllms("lora_shrink_op", "_lora_shrink")
)
lora_expand = VLLM.declare(
    "lora_expand", reference=references.lora_expand, triton=_vllms("lora_expand_op", "_lora_expand")
)

_SORTED = "Tensor? sorted_tokens, Tensor? counts, Tensor? starts, Tensor? slots, Tensor? none, Tensor? active"
VLLM.declare_to_compilers(
    lora_shrink,
    f"lora_shrink(Tensor x, Tensor[] a, Tensor! y, Tensor adapters, {_SORTED}, float scale) -> ()",
)
VLLM.declare_to_compilers(
    lora_expand,
    f"lora_expand(Tensor x, Tensor[] b, Tensor! y, Tensor adapters, {_SORTED}, int offset_start=0, "
    "bool add_inputs=False) -> ()",
)
