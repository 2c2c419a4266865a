"""Functions of vLLM that call an operator on the platform of CUDA alone, and else compute it of its parts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor
from vllm import _custom_ops, envs
from vllm.model_executor.layers.fused_moe.router import grouped_topk_router

_Function = Callable[..., Any]
_MOST = 32  # groups, and experts of a token, that the kernel takes


def register() -> None:
    """Lets them call the operators on flagos, for the calls that they make on CUDA."""
    _custom_ops.apply_repetition_penalties_torch = _penalized(
        _custom_ops.apply_repetition_penalties_torch
    )
    grouped_topk_router.grouped_topk = _routed(grouped_topk_router.grouped_topk)


def _penalized(of_parts: _Function) -> _Function:
    @wraps(of_parts)
    def apply_repetition_penalties(logits: Tensor, *masks_and_penalties: Tensor) -> None:
        one = logits.device.type == "flagos" and logits.is_contiguous()
        apply = torch.ops._C.apply_repetition_penalties_ if one else of_parts
        apply(logits, *masks_and_penalties)

    return apply_repetition_penalties


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
        grouping = (num_expert_group, topk_group, topk, renormalize, routed_scaling_factor)
        if (
            gating_output.device.type != "flagos"
            or not envs.VLLM_USE_FUSED_MOE_GROUPED_TOPK
            or max(num_expert_group, topk) > _MOST
            or scoring_func not in ("softmax", "sigmoid")
            or e_score_correction_bias is None
        ):
            return of_parts(  # type: ignore[no-any-return]
                hidden_states,
                gating_output,
                topk,
                renormalize,
                num_expert_group,
                topk_group,
                scoring_func,
                routed_scaling_factor,
                e_score_correction_bias,
            )
        sigmoid = scoring_func == "sigmoid"
        scores = gating_output if sigmoid else gating_output.softmax(-1)
        chosen: tuple[Tensor, Tensor] = torch.ops._moe_C.grouped_topk(
            scores, *grouping, e_score_correction_bias, int(sigmoid)
        )
        return chosen

    return grouped_topk
