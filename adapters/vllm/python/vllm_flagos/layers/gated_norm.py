"""Norms with a gate, as gated delta nets and state spaces have them, over ``vllm::gated_rms_norm``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.model_executor.layers.layernorm import RMSNormGated

from vllm_flagos.layers.replacement import replace


def register() -> None:
    """Lets the layer of gated delta nets call the operator."""
    replace(RMSNormGated, _gate_last)


def register_state_spaces() -> None:
    """Lets the layer of state spaces (Mamba 2) call the operator: its module is theirs alone."""
    from vllm.model_executor.layers.mamba.mamba_mixer2 import Mixer2RMSNormGated

    replace(Mixer2RMSNormGated, _gate_first)


def _gate_last(self: Any, x: Tensor, z: Tensor | None = None) -> Any:
    return torch.ops.vllm_flagos.gated_rms_norm(
        x, z, self.weight, self.eps, self.group_size, self.norm_before_gate, self.activation
    )


def _gate_first(self: Any, x: Tensor, gate: Tensor) -> Any:
    if not self.use_rms_norm or self.n_groups != 1 or self.tp_size > 1:
        return self.forward_cuda(x, gate)  # which has no kernel for these
    return torch.ops.vllm_flagos.gated_rms_norm(
        x, gate, self.weight, self.variance_epsilon, None, False, "silu"
    )
