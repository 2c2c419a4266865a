"""Multi-head latent attention: vLLM's backend for Triton, whose kernels are operators of the plan."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.v1.attention.backends.mla import triton_mla
from vllm.v1.attention.backends.mla.prefill.base import MLAPrefillBackend

from flagos_serving.declaration import device_type
from vllm_flagos import operators

_DTYPES = [torch.float16, torch.bfloat16]
if device_type() == "cpu":
    _DTYPES.append(torch.float32)  # which kernels of CUDA do not take


class FlagosLatentAttention(triton_mla.TritonMLABackend):
    """``vllm::latent_attention`` for tokens after a prompt, and `Expanded` for prompts."""

    supported_dtypes = _DTYPES

    @classmethod
    def full_cls_name(cls) -> Any:
        """Module and name, by which vLLM tells backends apart."""
        return (cls.__module__, cls.__qualname__)


class Expanded(MLAPrefillBackend):
    """Prompts by ``vllm::expanded_attention``; those with a context by ``vllm::expanded_attention_to_merge``."""

    supported_dtypes = _DTYPES

    @staticmethod
    def get_name() -> str:
        """The name in messages."""
        return "FLAGOS"

    def run_prefill_new_tokens(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        return_softmax_lse: bool,
        out: Tensor | None = None,
        output_scale: Tensor | None = None,
    ) -> Any:
        """Attention of each sequence's new tokens to themselves."""
        given = self._prefill_metadata
        attend = (
            operators.expanded_attention_to_merge
            if return_softmax_lse
            else operators.expanded_attention
        )
        starts, most = given.query_start_loc, given.max_query_len
        return attend(q, k, v, starts, starts, most, most, self.scale, True)

    def run_prefill_context_chunk(self, chunk_idx: int, q: Tensor, k: Tensor, v: Tensor) -> Any:
        """Attention of the new tokens to one chunk of what is cached."""
        given = self._prefill_metadata
        context = given.chunked_context
        return operators.expanded_attention_to_merge(
            q,
            k,
            v,
            given.query_start_loc,
            context.cu_seq_lens[chunk_idx],
            given.max_query_len,
            context.max_seq_lens[chunk_idx],
            self.scale,
            False,
        )


def prefill_backend(config: Any) -> type[MLAPrefillBackend]:
    """In the place of vLLM's choice, whose backends are for its own platforms."""
    return Expanded


def one_split(length: int, units: int) -> int:
    """In the place of vLLM's number of parts that kernels compute at the same time, which asks Triton."""
    return 1
