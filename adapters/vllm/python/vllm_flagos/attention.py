"""The attention backend: vLLM's for Triton, whose kernels are operators of the plan (`vllm_flagos.completions`)."""

from __future__ import annotations

from typing import Any

from vllm.v1.attention.backends.triton_attn import TritonAttentionBackend, TritonAttentionImpl

from flagos_serving.declaration import device_type
from vllm_flagos.vllm import triton_missing


class FlagosAttentionImpl(TritonAttentionImpl):
    """On CUDA with queries of 8 bits over a cache of 8 bits, as on vLLM's own platform; elsewhere they stay exact."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.supports_quant_query_input = device_type() == "cuda"


class FlagosAttention(TritonAttentionBackend):
    """``vllm::paged_attention`` over a cache that ``vllm::reshape_and_cache`` writes."""

    @staticmethod
    def get_name() -> str:
        """The name that vLLM has for backends of others."""
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[TritonAttentionImpl]:
        """The implementation of a layer."""
        return FlagosAttentionImpl

    @classmethod
    def supports_head_size(cls, head_size: int) -> bool:
        """Any where the reference serves; Triton's kernels need 32."""
        return triton_missing() is not None or bool(super().supports_head_size(head_size))

    @classmethod
    def full_cls_name(cls) -> Any:
        """Module and name, by which vLLM tells backends apart."""
        return (cls.__module__, cls.__qualname__)
