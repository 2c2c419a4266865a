"""``flagos_moe``: a mixture of experts, all of them on every rank."""

from __future__ import annotations

import torch
from lightx2v.common.ops.moe.fused_moe import FusedMoETemplate
from torch import Tensor

from lightx2v_fl import operators
from lightx2v_fl.operators.moe import ACTIVATIONS

_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


class FlagosFusedMoE(FusedMoETemplate):
    """Experts packed along the first dimension: see `lightx2v_fl.operators.moe` for the shapes."""

    def __init__(
        self,
        fc1_weight: Tensor,
        fc2_weight: Tensor,
        activation: str,
        fc1_bias: Tensor | None = None,
        fc2_bias: Tensor | None = None,
    ) -> None:
        super().__init__()
        if activation not in ACTIVATIONS:
            raise ValueError(f"flagos_moe computes {' and '.join(ACTIVATIONS)}, not {activation!r}")
        middle = fc2_weight.shape[2] * (2 if activation == "swiglu" else 1)
        if fc1_weight.ndim != 3 or fc1_weight.shape[:2] != (fc2_weight.shape[0], middle):
            raise ValueError(
                f"fc2 of {tuple(fc2_weight.shape)} with {activation} needs fc1 of "
                f"({fc2_weight.shape[0]}, {middle}, in), not {tuple(fc1_weight.shape)}"
            )
        self.activation = activation
        self.register_parameter("fc1_weight", fc1_weight)
        self.register_parameter("fc2_weight", fc2_weight)
        self.register_parameter("fc1_bias", fc1_bias)
        self.register_parameter("fc2_bias", fc2_bias)

    @torch.no_grad()
    def apply(
        self,
        input: Tensor,
        token_selected_experts: Tensor,
        token_final_scales: Tensor,
        output: Tensor | None = None,
    ) -> Tensor:
        """[tokens, in] → [tokens, out], written to ``output`` where one is given."""
        if token_selected_experts.dtype not in _INTEGERS:
            raise TypeError(
                f"token_selected_experts must be integers, not {token_selected_experts.dtype}"
            )
        if token_selected_experts.shape != token_final_scales.shape or (
            token_selected_experts.shape[0] != input.shape[0]
        ):
            raise ValueError(
                f"{input.shape[0]} tokens need experts and scales of ({input.shape[0]}, k), not "
                f"{tuple(token_selected_experts.shape)} and {tuple(token_final_scales.shape)}"
            )
        if input.shape[0] == 0:
            routed = input.new_empty(0, self.fc2_weight.shape[1])
        else:
            routed = operators.moe(
                input,
                token_selected_experts,
                token_final_scales,
                self.fc1_weight,
                self.fc2_weight,
                self.fc1_bias,
                self.fc2_bias,
                self.activation,
            )
        return routed if output is None else output.copy_(routed)
