"""Rotary embeddings over ``_C::rotary_embedding``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from vllm.model_executor.layers import rotary_embedding
from vllm.model_executor.layers.rotary_embedding.base import RotaryEmbedding


def register() -> None:
    """Lets every rotary embedding that rotates as the base class does call the operator."""
    assert rotary_embedding  # its import defines the subclasses
    for layer in (RotaryEmbedding, *_subclasses(RotaryEmbedding)):
        if (
            layer.forward_cuda is RotaryEmbedding.forward_cuda
            and layer.forward_native is RotaryEmbedding.forward_native
        ):
            _register(layer)


def _subclasses(layer: Any) -> Iterator[Any]:
    for below in layer.__subclasses__():
        yield below
        yield from _subclasses(below)


def _register(layer: Any) -> None:
    class Served(layer):
        def forward_oot(
            self,
            positions: torch.Tensor,
            query: torch.Tensor,
            key: torch.Tensor | None = None,
        ) -> Any:
            return self.forward_cuda(positions, query, key)

    Served.__name__ = Served.__qualname__ = layer.__name__
    own = layer.name
    layer.register_oot(Served)
    Served.name = own
