"""Functions of vLLM that call an operator on the platform of CUDA alone, and else compute it of its parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from vllm import _custom_ops, envs
from vllm.model_executor.layers.fused_moe.router import grouped_topk_router as router

_Function = Callable[..., Any]
_MOST = 32  # groups, and experts of a token, that the kernel takes


def register() -> None:
    """Lets them call the operators on flagos, for the calls that they make on CUDA."""
    _custom_ops.apply_repetition_penalties_torch = _penalized(
        _custom_ops.apply_repetition_penalties_torch
    )
    _custom_ops.grouped_topk = _grouped_topk
    router.grouped_topk = _routed(router.grouped_topk)


def _penalized(of_parts: _Function) -> _Function:
    @wraps(of_parts)
    def apply_repetition_penalties(logits: Tensor, *masks_and_penalties: Tensor) -> None:
        one = logits.device.type == "flagos" and logits.is_contiguous()
        apply = torch.ops._C.apply_repetition_penalties_ if one else of_parts
        apply(logits, *masks_and_penalties)

    return apply_repetition_penalties


def _grouped_topk(
    scores: Tensor, groups: int, best_groups: int, topk: int, *more: Any
) -> tuple[Tensor, Tensor]:
    if not scores.shape[0]:  # a kernel is not launched over nothing
        nothing = scores.new_empty((0, topk), dtype=torch.float32)
        return nothing, nothing.int()
    chosen: tuple[Tensor, Tensor] = torch.ops._moe_C.grouped_topk(
        scores, groups, best_groups, topk, *more
    )
    return chosen


def _routed(of_parts: _Function) -> _Function:
    @wraps(of_parts)
    def grouped_topk(
        hidden_states: Tensor,
        gating_output: Tensor,
        topk: int,
        renormalize: bool,
        num_expert_group: int = 0,
        topk_group: int = 0,
        scoring_func: str = "softmax",
        routed_scaling_factor: float = 1.0,
        e_score_correction_bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        one = (
            gating_output.device.type == "flagos"
            and envs.VLLM_USE_FUSED_MOE_GROUPED_TOPK
            and max(num_expert_group, topk) <= _MOST
            and e_score_correction_bias is not None
        )
        choose: Callable[..., tuple[Tensor, Tensor]] = (
            router.fused_grouped_topk if one else of_parts
        )
        return choose(
            hidden_states=hidden_states,
            gating_output=gating_output,
            topk=topk,
            renormalize=renormalize,
            num_expert_group=num_expert_group,
            topk_group=topk_group,
            scoring_func=scoring_func,
            routed_scaling_factor=routed_scaling_factor,
            e_score_correction_bias=e_score_correction_bias,
        )

    return grouped_topk
