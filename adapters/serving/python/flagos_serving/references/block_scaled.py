"""Products of 8-bit numbers whose scales are of groups and blocks, as DeepSeek-V3's and Qwen3's FP8 weights have them.

``block_scaled_mm`` is x · wᵀ [tokens, out] in ``dtype`` of x [tokens, in] and w [out, in] in float8_e4m3fn. ``x_scale``
[tokens, groups of columns] and ``w_scale`` [blocks of rows, blocks of columns] are in float32, ``block`` is (rows,
columns) of a block of w, and a group of x has a block's columns. Sums are in float32.
"""

from __future__ import annotations

import torch
from torch import Tensor


def block_scaled_mm(
    x: Tensor, w: Tensor, x_scale: Tensor, w_scale: Tensor, block: list[int], dtype: torch.dtype
) -> Tensor:
    rows, columns = block
    groups = -(-w.shape[1] // columns)
    for name, scale, shape in (
        ("x_scale", x_scale, (x.shape[0], groups)),
        ("w_scale", w_scale, (-(-w.shape[0] // rows), groups)),
    ):
        if tuple(scale.shape) != shape:
            raise ValueError(f"block_scaled_mm: {name} is {tuple(scale.shape)}, not {shape}")
    made = torch.zeros(x.shape[0], w.shape[0], dtype=torch.float32, device=x.device)
    for group, at in enumerate(range(0, w.shape[1], columns)):
        of_rows = w_scale[:, group].repeat_interleave(rows)[: w.shape[0]]
        wide = w[:, at : at + columns].float() * of_rows[:, None]
        made += (x[:, at : at + columns].float() * x_scale[:, group, None]) @ wide.t()
    return made.to(dtype)
