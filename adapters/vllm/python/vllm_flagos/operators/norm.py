"""Norms with a gate: see `flagos_serving.references.layers`."""

from __future__ import annotations

from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import layers as references
from vllm_flagos.vllm import VLLM

# vLLM has the one in gated delta nets, whose gate comes after the norm, and the other in state spaces.
_gate_last = VLLM.function("third_party.flash_linear_attention.ops.layernorm_guard", "rmsnorm_fn")
_gate_first = VLLM.function("model_executor.layers.mamba.ops.layernorm_gated", "rms_norm_gated")


def _triton(
    x: Tensor,
    gate: Tensor | None,
    weight: Tensor,
    epsilon: float,
    group_size: int | None,
    norm_before_gate: bool,
    activation: str,
) -> Tensor:
    given = {"z": gate, "eps": epsilon, "group_size": group_size}
    if norm_before_gate:
        made: Tensor = _gate_last(
            x, weight, None, **given, norm_before_gate=True, activation=activation
        )
    elif activation == "sigmoid":
        raise decline("vLLM's kernel of a gate before the norm has no sigmoid")
    else:
        made = _gate_first(x, weight, None, **given, norm_before_gate=False)
    return made


gated_rms_norm = VLLM.declare("gated_rms_norm", reference=references.gated_rms_norm, triton=_triton)


def _shape(x: Tensor, *more: object) -> Tensor:
    return x.new_empty(x.shape)


VLLM.declare_to_compilers(
    gated_rms_norm,
    "gated_rms_norm(Tensor x, Tensor? gate, Tensor weight, float epsilon, int? group_size, bool norm_before_gate, "
    "str activation) -> Tensor",
    _shape,
)
