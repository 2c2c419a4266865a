"""Rotary embeddings over ``sglang::rotary_embedding``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sglang.srt.layers import rotary_embedding
from sglang.srt.layers.rotary_embedding.base import RotaryEmbedding
from torch import Tensor

from sglang_flagos import operators
from sglang_flagos.layers.norm import KEY


def _forward(
    self: Any,
    positions: Tensor,
    query: Tensor,
    key: Tensor,
    offsets: Tensor | None = None,
    fused_set_kv_buffer_arg: Any = None,
) -> tuple[Tensor, Tensor]:
    """Rotates in place, in float32."""
    assert fused_set_kv_buffer_arg is None  # SGLang passes it where `is_cuda()` is true alone
    positions = positions if offsets is None else positions + offsets
    query, key = (x if x.stride(-1) == 1 else x.contiguous() for x in (query, key))
    operators.rotary_embedding(
        positions, query, key, self.head_size, self.cos_sin_cache, self.is_neox_style
    )
    return query, key


def register() -> None:
    """Lets every rotary embedding that rotates as the base class does call the operator."""
    assert rotary_embedding  # its import defines the subclasses
    for layer in (RotaryEmbedding, *_subclasses(RotaryEmbedding)):
        if (
            layer.forward_cuda is RotaryEmbedding.forward_cuda
            and layer.forward_native is RotaryEmbedding.forward_native
        ):
            RotaryEmbedding.register_oot_forward(layer, _forward, KEY)


def _subclasses(layer: Any) -> Iterator[Any]:
    for below in layer.__subclasses__():
        yield below
        yield from _subclasses(below)
