"""Attention backends by name."""

import enum


class AttentionBackendEnum(enum.Enum):
    FLASH_ATTN = "vllm.v1.attention.backends.flash_attn.FlashAttentionBackend"
    TRITON_ATTN = "vllm.v1.attention.backends.triton_attn.TritonAttentionBackend"
    TRITON_MLA = "vllm.v1.attention.backends.mla.triton_mla.TritonMLABackend"
    CUSTOM = ""

    def get_path(self):
        return registered.get(self, self.value)


registered = {}


def register_backend(backend, path):
    registered[backend] = path
