"""Rotary embeddings over ``_C::rotary_embedding``, ``vllm::rotate`` and ``vllm::rotate_in_three_axes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding
from vllm.model_executor.layers.rotary_embedding.common import ApplyRotaryEmb
from vllm.model_executor.layers.rotary_embedding.mrope import MRotaryEmbedding

from vllm_flagos.layers.replacement import replace


def register() -> None:
    """Lets every rotary embedding that rotates as the base class does call the operator; those of encoders theirs."""
    assert rotary_embedding  # its import defines the subclasses
    for layer in (RotaryEmbedding, *_subclasses(RotaryEmbedding)):
        if (
            layer.forward_cuda is RotaryEmbedding.forward_cuda
            and layer.forward_native is RotaryEmbedding.forward_native
        ):
            replace(layer, _by_places)
    replace(ApplyRotaryEmb, _by_angles)
    replace(MRotaryEmbedding, _in_three_axes)


def _subclasses(layer: Any) -> Iterator[Any]:
    for below in layer.__subclasses__():
        yield below
        yield from _subclasses(below)


def _by_places(self: Any, positions: Tensor, query: Tensor, key: Tensor | None = None) -> Any:
    return self.forward_cuda(positions, query, key)


def _by_angles(self: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Any:
    x, cos, sin, shape, dtype = self._pre_process(x, cos, sin)
    made = torch.ops.vllm_flagos.rotate(x, cos, sin, not self.is_neox_style)
    return self._post_process(made, shape, dtype)


def _in_three_axes(
    self: Any, positions: Tensor, query: Tensor, key: Tensor, offsets: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    if positions.ndim == 1:
        made: tuple[Tensor, Tensor] = self.forward_native(positions, query, key, offsets)
        return made
    cos, sin = self._match_cos_sin_cache_dtype(query)[positions].chunk(2, dim=-1)
    query, key = query.contiguous(), key.contiguous()
    sizes = (list(self.mrope_section), self.head_size, self.rotary_dim)
    torch.ops.vllm_flagos.rotate_in_three_axes(
        query, key, cos, sin, *sizes, self.mrope_interleaved, self.is_neox_style
    )
    return query, key
