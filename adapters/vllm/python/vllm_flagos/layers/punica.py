"""LoRA over ``vllm::lora_shrink`` and ``vllm::lora_expand``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.lora.punica_wrapper.punica_base import PunicaWrapperBase

from vllm_flagos import operators

assert operators  # defines torch.ops.vllm_flagos


class FlagosPunica(PunicaWrapperBase):
    """vLLM's interface to the products of adapters; see `vllm_flagos.operators.lora`."""

    def __init__(
        self, max_num_batched_tokens: int, max_batches: int, device: Any, **kwargs: Any
    ) -> None:
        super().__init__(max_num_batched_tokens, max_batches, device)

    def add_shrink(
        self, y: Any, x: Tensor, lora_a_stacked: tuple[Tensor, ...], scale: float, **kwargs: Any
    ) -> None:
        """y[i] = x · aᵢᵀ · scale."""
        x = x.view(-1, x.shape[-1])
        for buffer, a in zip(y, lora_a_stacked, strict=True):
            torch.ops.vllm_flagos.lora_shrink(
                buffer.view(-1, buffer.shape[-1]), x, a, self.token_lora_indices, scale
            )

    def add_expand(
        self,
        y: Tensor,
        x: Any,
        lora_b_stacked: tuple[Tensor, ...],
        output_slices: tuple[int, ...],
        offset_start: int = 0,
        add_inputs: bool = True,
        **kwargs: Any,
    ) -> None:
        """The columns of y that belong to slice i += x[i] · bᵢᵀ."""
        y, offset = y.view(-1, y.shape[-1]), offset_start
        for part, b, width in zip(x, lora_b_stacked, output_slices, strict=True):
            torch.ops.vllm_flagos.lora_expand(
                y, part, b, self.token_lora_indices, offset, width, add_inputs
            )
            offset += width

    def add_lora_embedding(
        self, y: Tensor, x: Tensor, lora_b_stacked: Tensor, add_inputs: bool = True, **kwargs: Any
    ) -> None:
        """y += x · bᵀ."""
        y = y.view(-1, y.shape[-1])
        torch.ops.vllm_flagos.lora_expand(
            y, x, lora_b_stacked, self.token_lora_indices, 0, y.shape[1], add_inputs
        )

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        *,
        buffer: Any = None,
        **kwargs: Any,
    ) -> None:
        """The columns of y that belong to slice i += x · aᵢᵀ · bᵢᵀ · scale."""
        x = x.view(-1, x.shape[-1])
        if buffer is None:
            rank = lora_b_stacked[0].size(-1)
            buffer = tuple(
                torch.zeros(x.shape[0], rank, dtype=torch.float32, device=x.device)
                for _ in output_slices
            )
        self.add_shrink(buffer, x, lora_a_stacked, scale)
        self.add_expand(y, buffer, lora_b_stacked, output_slices)

    def add_lora_logits(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: Tensor,
        lora_b_stacked: Tensor,
        scale: float,
        *,
        buffer: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        """y += x · aᵀ · bᵀ · scale, one row for each sampled token."""
        y, x = y.view(-1, y.shape[-1]), x.view(-1, x.shape[-1])
        if buffer is None:
            rank = lora_b_stacked.size(-1)
            buffer = torch.zeros(x.shape[0], rank, dtype=torch.float32, device=x.device)
        torch.ops.vllm_flagos.lora_shrink(buffer, x, lora_a_stacked, self.sampler_indices, scale)
        torch.ops.vllm_flagos.lora_expand(
            y, buffer, lora_b_stacked, self.sampler_indices, 0, y.shape[1], True
        )
