"""Speculative decoding: which draft tokens are kept, as launches of vLLM's kernels (`vllm_flagos.launches`).

Draft tokens of all requests are flat, [drafts]; ``ends`` [requests] are the sums of their numbers. ``output`` is int32
[requests, most drafts + 1] and holds -1. A request keeps its drafts up to the first rejected one, whose place gets
another token; if it keeps all, a bonus token follows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from flagos_serving.declaration import decline
from vllm_flagos.launches import launch
from vllm_flagos.vllm import VLLM


def _requests(ends: Tensor, drafts: int) -> Tensor:
    """The request of each draft token, int64 [drafts]."""
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).long()
    numbers = torch.arange(len(ends), device=ends.device)
    return torch.repeat_interleave(numbers, counts, output_size=drafts)


def _places(ends: Tensor, rows: Tensor) -> Tensor:
    """The place of each draft token among those of its request, int64 [drafts]."""
    begins = torch.cat((ends.new_zeros(1), ends[:-1])).long()
    return torch.arange(len(rows), device=rows.device) - begins[rows]


def _write(
    output: Tensor, ends: Tensor, accepted: Tensor, tokens: Tensor, bonus: Tensor, serve: Tensor
) -> None:
    """Writes ``tokens`` up to the first draft that is not kept, and the bonus where all are."""
    rows = _requests(ends, len(accepted))
    places = _places(ends, rows)
    rejected = torch.full((len(ends), output.shape[1]), False, device=output.device)
    rejected[rows, places] = ~accepted
    before = (rejected.long().cumsum(1) - rejected.long())[rows, places] == 0
    shown = before & serve[rows]
    output[rows[shown], places[shown]] = tokens[shown].to(output.dtype)
    whole = serve & ~rejected.any(1)
    counts = torch.diff(ends, prepend=ends.new_zeros(1)).long()
    numbers = torch.arange(len(ends), device=output.device)
    output[numbers[whole], counts[whole]] = bonus.flatten()[whole].to(output.dtype)


def _greedily(
    grid: Any,
    output: Tensor,
    ends: Tensor,
    drafts: Tensor,
    best: Tensor,
    bonus: Tensor,
    is_greedy: Tensor | None,
    max_spec_len: int,
    uniform: Tensor | None,
    rates: Tensor | None,
    *,
    SYNTHETIC_MODE: bool,
) -> None:
    serve = torch.ones_like(ends, dtype=torch.bool) if is_greedy is None else is_greedy
    accepted, tokens = drafts == best, best
    if SYNTHETIC_MODE:
        assert uniform is not None and rates is not None
        accepted = (uniform < rates[_places(ends, _requests(ends, len(drafts)))]) & (drafts >= 0)
        tokens = torch.where(accepted, drafts.to(best.dtype), best)
    _write(output, ends, accepted, tokens, bonus, serve)


def _randomly(
    grid: Any,
    output: Tensor,
    ends: Tensor,
    drafts: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    bonus: Tensor,
    recovered: Tensor,
    uniform: Tensor,
    is_greedy: Tensor,
    max_spec_len: int,
    vocab_size: int,
    rates: Tensor | None,
    *,
    NO_DRAFT_PROBS: bool,
    SYNTHETIC_MODE: bool,
) -> None:
    real = drafts >= 0
    numbers = drafts.clamp(min=0).long()[:, None]
    target = target_probs.gather(1, numbers)[:, 0]
    if SYNTHETIC_MODE:
        assert rates is not None
        accepted = uniform < rates[_places(ends, _requests(ends, len(drafts)))]
    elif NO_DRAFT_PROBS:
        accepted = target >= uniform
    else:
        assert draft_probs is not None
        draft = draft_probs.gather(1, numbers)[:, 0]
        accepted = (draft > 0) & (target / draft >= uniform)
    accepted &= real
    tokens = torch.where(accepted, drafts, recovered.to(drafts.dtype))
    _write(output, ends, accepted, tokens, bonus, ~is_greedy)


def _expand(
    grid: Any,
    output: Tensor,
    x: Tensor,
    ends: Tensor,
    replace_from: float,
    replace_to: float,
    *,
    MAX_NUM_TOKENS: int,
) -> None:
    values = torch.where(x == replace_from, torch.full_like(x, replace_to), x)
    output.copy_(values[_requests(ends, len(output))])


def _recover(
    grid: Any,
    output: Tensor,
    ends: Tensor,
    drafts: Tensor,
    draft_probs: Tensor | None,
    target_probs: Tensor,
    inverse: Tensor,
    vocab_size: int,
    *,
    BLOCK_SIZE: int,
    NO_DRAFT_PROBS: bool,
    USE_FP64_GUMBEL: bool,
) -> None:
    if len(drafts) == 0:
        return
    if NO_DRAFT_PROBS:
        rest = target_probs.clone()
        rest.scatter_(1, drafts.clamp(min=0).long()[:, None], 0.0)
        padded = (drafts < 0)[:, None]
        rest = torch.where(padded, target_probs, rest)
    elif draft_probs is not None:
        rest = (target_probs - draft_probs).clamp(min=0)
    else:
        raise decline("there are neither probabilities of the draft nor the setting that says so")
    scores = rest.to(inverse.dtype) * inverse[_requests(ends, len(drafts))]
    output.copy_(scores.argmax(dim=1))


reject_greedily = VLLM.declare(
    "reject_greedily",
    reference=_greedily,
    triton=launch("reject_greedily"),
)
reject_randomly = VLLM.declare(
    "reject_randomly",
    reference=_randomly,
    triton=launch("reject_randomly"),
)
expand_to_tokens = VLLM.declare(
    "expand_to_tokens", reference=_expand, triton=launch("expand_to_tokens")
)
recover_tokens = VLLM.declare(
    "recover_tokens",
    reference=_recover,
    triton=launch("recover_tokens"),
)
