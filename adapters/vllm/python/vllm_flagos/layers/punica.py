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
        self, y: Tensor, x: Tensor, lora_a_stacked: tuple[Tensor, ...], scale: float, **kwargs: Any
    ) -> None:
        """y[i] = x · aᵢᵀ · scale."""
        x = x.view(-1, x.shape[-1])
        _shrink(y, x, lora_a_stacked, self.token_lora_indices, scale)

    def add_expand(
        self,
        y: Tensor,
        x: Tensor,
        lora_b_stacked: tuple[Tensor, ...],
        output_slices: tuple[int, ...],
        offset_start: int = 0,
        add_inputs: bool = True,
        **kwargs: Any,
    ) -> None:
        """The columns of y that belong to slice i += x[i] · bᵢᵀ."""
        _expand(y, x, lora_b_stacked, self.token_lora_indices, offset_start, add_inputs)

    def add_lora_embedding(
        self, y: Tensor, x: Tensor, lora_b_stacked: Tensor, add_inputs: bool = True, **kwargs: Any
    ) -> None:
        """y += x · bᵀ."""
        _expand(y, x[None], (lora_b_stacked,), self.token_lora_indices, 0, add_inputs)

    def add_lora_linear(
        self,
        y: Tensor,
        x: Tensor,
        lora_a_stacked: tuple[Tensor, ...],
        lora_b_stacked: tuple[Tensor, ...],
        scale: float,
        output_slices: tuple[int, ...],
        *,
        buffer: Tensor | None = None,
        **kwargs: Any,
    ) -> None:
        """The columns of y that belong to slice i += x · aᵢᵀ · bᵢᵀ · scale."""
        x = x.view(-1, x.shape[-1])
        if buffer is None:
            buffer = _buffer(x, lora_b_stacked)
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
        x = x.view(-1, x.shape[-1])
        buffer = _buffer(x, (lora_b_stacked,)) if buffer is None else buffer[None]
        _shrink(buffer, x, (lora_a_stacked,), self.sampler_indices, scale)
        _expand(y, buffer, (lora_b_stacked,), self.sampler_indices, 0, True)

    def apply_lora_full_linear(
        self,
        y: Tensor,
        x: Tensor,
        weight_stacked: Tensor,
        bias_stacked: Tensor,
        module_enabled: Tensor,
    ) -> None:
        """y = x · wᵀ + bias where the row's adapter has a whole layer of its own: a classifier's, in vLLM 0.33."""
        made = torch.empty(
            1, x.shape[0], weight_stacked.shape[-2], dtype=torch.float32, device=x.device
        )
        _shrink(made, x, (weight_stacked,), self.sampler_indices, 1.0)
        y.copy_(self._select_full_linear_output(y, made[0], bias_stacked, module_enabled))


def _buffer(x: Tensor, b: tuple[Tensor, ...]) -> Tensor:
    """For the products with a: [slices, tokens, rank]."""
    return torch.zeros(len(b), x.shape[0], b[0].shape[-1], dtype=torch.float32, device=x.device)


_UNSORTED = (None,) * 6  # what only kernels over sorted tokens read


def _shrink(y: Tensor, x: Tensor, a: tuple[Tensor, ...], adapters: Tensor, scale: float) -> None:
    torch.ops.vllm_flagos.lora_shrink(x, a, y, adapters, *_UNSORTED, scale)


def _expand(
    y: Tensor, x: Tensor, b: tuple[Tensor, ...], adapters: Tensor, offset: int, add: bool
) -> None:
    y = y.view(-1, y.shape[-1])
    torch.ops.vllm_flagos.lora_expand(x, b, y, adapters, *_UNSORTED, offset, add)
