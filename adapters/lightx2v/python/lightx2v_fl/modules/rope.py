"""``flagos_rope``: rotary embedding of queries and keys."""

from __future__ import annotations

from typing import Any

import torch
from lightx2v.common.ops.rope.torch_rope import TorchComplexRope
from torch import Tensor

from lightx2v_fl import operators


class FlagosRope(TorchComplexRope):
    """Rotary embedding by angles in any form of LightX2V: complex, (cos, sin), or both in one tensor.

    `prepare_freqs` converts angles to complex numbers, [tokens, (1,) dim / 2]; models call it once per shape.
    """

    def apply(self, q: Tensor, k: Tensor, freqs: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Queries and keys, each rotated."""
        first, second = self._rotate((q, k), freqs, **kwargs)
        return first, second

    def apply_single(self, x: Tensor, freqs: Any, **kwargs: Any) -> Tensor:
        """One tensor, rotated."""
        return self._rotate((x,), freqs, **kwargs)[0]

    def _rotate(
        self,
        tensors: tuple[Tensor, ...],
        freqs: Any,
        rotary_dim: int | None = None,
        positions: Tensor | None = None,
        unsqueeze_dim: int = -2,
        **kwargs: Any,
    ) -> tuple[Tensor, ...]:
        width = tensors[0].shape[-1]
        rotated = width if rotary_dim is None else rotary_dim
        if rotated % 2 or rotated > width:
            raise ValueError(f"rotary_dim must be even and at most {width}, not {rotated}")
        angles: Tensor = self.prepare_freqs(freqs, rotary_dim=rotated)
        if positions is not None:
            angles = angles.index_select(0, positions.to(angles.device, torch.int64))
        while angles.ndim < tensors[0].ndim:
            angles = angles.unsqueeze(unsqueeze_dim)
        parts = tuple(x[..., :rotated] for x in tensors) if rotated < width else tensors
        turned: tuple[Tensor, ...] = operators.rope(
            parts, angles, self.layout == "interleaved", self.compute_dtype
        )
        if rotated == width:
            return turned
        return tuple(
            torch.cat((new, x[..., rotated:]), dim=-1)
            for new, x in zip(turned, tensors, strict=True)
        )
