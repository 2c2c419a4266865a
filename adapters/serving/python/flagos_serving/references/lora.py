"""Low-rank adapters over a batch in which each token has an adapter of its own, or none.

The operators have the signatures of vLLM's kernels of these names. ``lora_shrink`` writes x · aᵢᵀ · scale to y[i]
[slices, tokens, rank] for each slice, where aᵢ is [slots, rank, in] (or [slots, 1, rank, in]) and ``adapters`` [tokens]
has the slot of each token's adapter. ``lora_expand`` adds x[i] · bᵢᵀ to (or, without ``add_inputs``, writes it over)
the columns of y that belong to the slice, from ``offset_start`` on, where bᵢ is [slots, out, rank]. vLLM's own kernels
read the tokens sorted by adapter, which `LoRAKernelMeta` of vLLM describes in six more tensors.

A token without an adapter (a negative number) has 0 for its product. vLLM's own torch version reads the last adapter
there, so that its mixed batches are wrong.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def _per_slot(weights: Tensor) -> Tensor:
    return weights.squeeze(1) if weights.dim() == 4 else weights


def _product(x: Tensor, weights: Tensor, adapters: Tensor, dtype: torch.dtype) -> Tensor:
    """x · weights[adapter]ᵀ a token; over all slots, so that nothing depends on the numbers."""
    tokens, each = adapters[: x.shape[0]], _per_slot(weights)
    result = torch.zeros(x.shape[0], each.shape[1], dtype=dtype, device=x.device)
    for slot in range(each.shape[0]):
        made = x.to(dtype) @ each[slot].to(dtype).t()
        result = torch.where((tokens == slot)[:, None], made, result)
    return result


def _nobody_has_one(none: Tensor | None) -> bool:
    """Whether no token has an adapter. vLLM then leaves ``adapters`` as the step before had it."""
    return none is not None and bool(none)


def lora_shrink(
    x: Tensor,
    a: Sequence[Tensor],
    y: Tensor,
    adapters: Tensor,
    sorted_tokens: Tensor | None,
    counts: Tensor | None,
    starts: Tensor | None,
    slots: Tensor | None,
    none: Tensor | None,
    active: Tensor | None,
    scale: float,
) -> None:
    if _nobody_has_one(none):
        return
    for into, weights in zip(y, a, strict=True):
        into.copy_(_product(x, weights, adapters, y.dtype) * scale)


def lora_expand(
    x: Tensor,
    b: Sequence[Tensor],
    y: Tensor,
    adapters: Tensor,
    sorted_tokens: Tensor | None,
    counts: Tensor | None,
    starts: Tensor | None,
    slots: Tensor | None,
    none: Tensor | None,
    active: Tensor | None,
    offset_start: int = 0,
    add_inputs: bool = False,
) -> None:
    if _nobody_has_one(none):
        return
    offset = offset_start
    for given, weights in zip(x, b, strict=True):
        made = _product(given, weights, adapters, y.dtype)
        # A layer and its adapter may be padded differently.
        width = min(made.shape[1], y.shape[1] - offset)
        part = y[: made.shape[0], offset : offset + width]
        if add_inputs:
            part.add_(made[:, :width])
        else:
            part.copy_(made[:, :width])
        offset += width
