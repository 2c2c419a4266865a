"""Layers with a state for each sequence (Qwen3-Next, Mamba, Jamba): see `flagos_serving.references.states`."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from flagos_serving.declaration import decline
from flagos_serving.references import states as references
from vllm_flagos.kernels import wheel
from vllm_flagos.vllm import VLLM

_MAMBA = "model_executor.layers.mamba.ops"
_DELTA = "third_party.flash_linear_attention.ops"

_prepare = VLLM.function(f"{_DELTA}.fused_gdn_prefill_post_conv", "fused_post_conv_prep")


def prepares(head_k_dim: int, head_v_dim: int) -> bool:
    """Whether vLLM's kernel before a gated delta rule compiles for these sizes of heads.

    Its branches have a mask of the one size and of the other, and Triton wants one shape.
    """
    return (head_k_dim - 1).bit_length() == (head_v_dim - 1).bit_length()


def _prepare_delta_rule(
    conv_output: Tensor,
    a: Tensor,
    b: Tensor,
    A_log: Tensor,
    dt_bias: Tensor,
    num_k_heads: int,
    head_k_dim: int,
    head_v_dim: int,
    **options: bool,
) -> Any:
    if not prepares(head_k_dim, head_v_dim):
        raise decline(
            f"vLLM's kernel compiles where keys and values need one power of two, not for {head_k_dim} and {head_v_dim}"
        )
    return _prepare(
        conv_output, a, b, A_log, dt_bias, num_k_heads, head_k_dim, head_v_dim, **options
    )


causal_conv1d = VLLM.declare(
    "causal_conv1d",
    reference=references.causal_conv1d,
    triton=VLLM.function(f"{_MAMBA}.causal_conv1d", "causal_conv1d_fn"),
)
causal_conv1d_update = VLLM.declare(
    "causal_conv1d_update",
    reference=references.causal_conv1d_update,
    triton=VLLM.function(f"{_MAMBA}.causal_conv1d", "causal_conv1d_update"),
)
prepare_delta_rule = VLLM.declare(
    "prepare_delta_rule",
    reference=references.prepare_delta_rule,
    triton=_prepare_delta_rule,
)
chunk_gated_delta_rule = VLLM.declare(
    "chunk_gated_delta_rule",
    reference=references.chunk_gated_delta_rule,
    triton=VLLM.function(f"{_DELTA}.chunk", "chunk_gated_delta_rule"),
)
gated_delta_rule_update = VLLM.declare(
    "gated_delta_rule_update",
    reference=references.gated_delta_rule_update,
    triton=VLLM.function(
        f"{_DELTA}.fused_sigmoid_gating", "fused_sigmoid_gating_delta_rule_update"
    ),
)
gated_delta_rule_packed_update = VLLM.declare(
    "gated_delta_rule_packed_update",
    reference=references.gated_delta_rule_packed_update,
    triton=VLLM.function(
        f"{_DELTA}.fused_recurrent", "fused_recurrent_gated_delta_rule_packed_decode"
    ),
)
state_space_chunks = VLLM.declare(
    "state_space_chunks",
    reference=references.state_space_chunks,
    triton=VLLM.function(f"{_MAMBA}.ssd_combined", "mamba_chunk_scan_combined_varlen"),
)
state_space_update = VLLM.declare(
    "state_space_update",
    reference=references.state_space_update,
    triton=VLLM.function(f"{_MAMBA}.ssu_dispatch", "selective_state_update"),
)
selective_scan = VLLM.declare(
    "selective_scan",
    reference=references.selective_scan,
    vllm_c=(VLLM.function(f"{_MAMBA}.mamba_ssm", "selective_scan_fn"), wheel.missing("_C")),
)
