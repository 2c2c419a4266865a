"""The 8-bit number formats of the linear layers, for torch's formulas and for Triton's kernels."""

from __future__ import annotations

import torch

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0  # torch.finfo(FP8).max
INT8_MAX = 127.0
SMALLEST_SCALE = 1e-12  # the scale of a token of zeros
