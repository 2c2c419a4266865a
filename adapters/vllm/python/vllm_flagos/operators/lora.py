"""Low-rank adapters over a batch in which each token has an adapter of its own, or none.

``lora_shrink(y, x, a, adapters, scale)`` writes x · aᵀ · scale to y [tokens, rank], where a is [slots, rank, in] (or
[slots, 1, rank, in]) and ``adapters`` [tokens] has the slot of each token's adapter. ``lora_expand(y, x, b, adapters,
offset, width, add)`` adds x · bᵀ to (or, without ``add``, writes it over) the columns of y from ``offset`` on, where b
is [slots, out, rank].

A token without an adapter (a negative number) has 0 for its product. vLLM's own torch version reads the last adapter
there, so that its mixed batches are wrong.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vllm_flagos.operators.declaration import declare


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


def _shrink(y: Tensor, x: Tensor, a: Tensor, adapters: Tensor, scale: float) -> None:
    y.copy_(_product(x, a, adapters, y.dtype) * scale)


def _expand(
    y: Tensor, x: Tensor, b: Tensor, adapters: Tensor, offset: int, width: int, add: bool
) -> None:
    made = _product(x, b, adapters, y.dtype)
    # A layer and its adapter may be padded differently.
    width = min(width, made.shape[1], y.shape[1] - offset)
    part = y[: made.shape[0], offset : offset + width]
    if add:
        part.add_(made[:, :width])
    else:
        part.copy_(made[:, :width])


lora_shrink = declare("lora_shrink", reference=_shrink)
lora_expand = declare("lora_expand", reference=_expand)

# For torch.compile, which cannot look into an operator of the plan.
_library = torch.library.Library("vllm_flagos", "FRAGMENT")
_library.define("lora_shrink(Tensor! y, Tensor x, Tensor a, Tensor adapters, float scale) -> ()")
_library.define(
    "lora_expand(Tensor! y, Tensor x, Tensor b, Tensor adapters, int offset, int width, bool add) -> ()"
)
_library.impl("lora_shrink", lambda *args: lora_shrink(*args), "PrivateUse1")
_library.impl("lora_expand", lambda *args: lora_expand(*args), "PrivateUse1")
