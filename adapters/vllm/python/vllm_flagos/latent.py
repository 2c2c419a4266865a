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

    def run_prefill_context_chunk(
        self,
        *,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        chunk_idx: int = 0,
        out: Tensor | None = None,
        chunk: Any = None,
    ) -> Any:
        """Attention of new tokens to one chunk of what is cached.

        In vLLM 0.26 it is a chunk of each sequence's context, by its number; in 0.33 ``chunk``, of some sequences, of
        whose tokens q is.
        """
        if chunk is None:
            given, context = self._prefill_metadata, self._prefill_metadata.chunked_context
            starts, most = given.query_start_loc, given.max_query_len
            of_keys, most_keys = context.cu_seq_lens[chunk_idx], context.max_seq_lens[chunk_idx]
        else:
            starts, most = chunk.query_start_loc, chunk.max_query_len
            of_keys, most_keys = chunk.cu_seq_lens, chunk.max_seq_len
        return operators.expanded_attention_to_merge(
            q, k, v, starts, of_keys, most, most_keys, self.scale, False
        )


def prefill_backend(config: Any) -> type[MLAPrefillBackend]:
    """In the place of vLLM's choice, whose backends are for its own platforms."""
    return Expanded


def one_split(length: int, units: int) -> int:
    """In the place of vLLM's number of parts that kernels compute at the same time, which asks Triton."""
    return 1
