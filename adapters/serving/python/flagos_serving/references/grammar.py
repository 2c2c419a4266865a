"""Masks of structured output.

``apply_token_bitmask`` writes -inf to the logits [requests, tokens] whose bit in ``mask`` is 0: int32 [requests,
words], 32 tokens in a word, the first in its lowest bit.
"""

from __future__ import annotations

import torch
from torch import Tensor


def apply_token_bitmask(logits: Tensor, mask: Tensor) -> None:
    """In place. Logits beyond the last word stay."""
    mask = mask.to(logits.device)
    places = torch.arange(32, device=mask.device, dtype=torch.int32)
    allowed = ((mask[..., None] >> places) & 1).flatten(-2).bool()
    known = min(allowed.shape[-1], logits.shape[-1])
    logits[..., :known].masked_fill_(~allowed[..., :known], float("-inf"))
