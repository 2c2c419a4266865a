"""vLLM's operators that flagos serves: their schemas, as vLLM declares them, and their references.

Arguments that vLLM 0.33 added have defaults, so that one schema takes the calls of 0.26 too.

What vLLM reads at its import or in its compiler passes is declared too, without a reference: calling it is an error
that names it. Nothing else is declared, because vLLM asks for features by asking whether an operator is there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from flagos_serving.references import latent
from flagos_serving.references import layers as by
from flagos_serving.references import quantized as of_integers


@dataclass(frozen=True)
class Kernel:
    """One operator of vLLM's libraries."""

    namespace: str
    schema: str
    reference: Callable[..., Any] | None = None

    @property
    def name(self) -> str:
        """The name without its namespace."""
        return self.schema.partition("(")[0]

    @property
    def qualified(self) -> str:
        """The name in the plan and in ``torch.ops``."""
        return f"{self.namespace}::{self.name}"


def _of_c(signature: str, reference: Callable[..., Any] | None = None) -> Kernel:
    return Kernel("_C", f"{signature} -> ()", reference)


_OUT = "(Tensor! out, Tensor input)"
KERNELS = (
    _of_c("rms_norm(Tensor! result, Tensor input, Tensor? weight, float epsilon)", by.rms_norm),
    _of_c(
        "fused_add_rms_norm(Tensor! input, Tensor! residual, Tensor? weight, float epsilon)",
        by.fused_add_rms_norm,
    ),
    _of_c(
        "rotary_embedding(Tensor positions, Tensor! query, Tensor!? key, int head_size, Tensor cos_sin_cache, "
        "bool is_neox, int rope_dim_offset=0, bool inverse=False)",
        by.rotary_embedding,
    ),
    _of_c("silu_and_mul(Tensor! result, Tensor input)", by.silu_and_mul),
    _of_c(f"mul_and_silu{_OUT}", by.mul_and_silu),
    _of_c(f"gelu_and_mul{_OUT}", by.gelu_and_mul),
    _of_c(f"gelu_tanh_and_mul{_OUT}", by.gelu_tanh_and_mul),
    _of_c("fatrelu_and_mul(Tensor! out, Tensor input, float threshold)", by.fatrelu_and_mul),
    _of_c(
        "swigluoai_and_mul(Tensor! out, Tensor input, float alpha=1.702, float limit=7.0)",
        by.swigluoai_and_mul,
    ),
    _of_c(
        "silu_and_mul_with_clamp(Tensor! result, Tensor input, float limit, float alpha=1.0, float beta=0.0)",
        by.silu_and_mul_with_clamp,
    ),
    _of_c(f"gelu_new{_OUT}", by.gelu_new),
    _of_c(f"gelu_fast{_OUT}", by.gelu_fast),
    _of_c(f"gelu_quick{_OUT}", by.gelu_quick),
    _of_c(f"relu_squared{_OUT}", by.relu_squared),
    _of_c(
        "static_scaled_fp8_quant(Tensor! result, Tensor input, Tensor scale, int[]? group_shape=None)",
        by.static_scaled_fp8_quant,
    ),
    _of_c(
        "dynamic_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale)",
        by.dynamic_scaled_fp8_quant,
    ),
    _of_c(
        "dynamic_per_token_scaled_fp8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor? scale_ub)",
        by.dynamic_per_token_scaled_fp8_quant,
    ),
    _of_c(
        "per_token_group_fp8_quant(Tensor input, Tensor! output_q, Tensor! output_s, int group_size, float eps, "
        "float fp8_min, float fp8_max, bool scale_ue8m0, bool dummy_is_scale_transposed, "
        "bool dummy_is_tma_aligned)",
        by.per_token_group_fp8_quant,
    ),
    _of_c(
        "static_scaled_int8_quant(Tensor! result, Tensor input, Tensor scale, Tensor? azp)",
        of_integers.static_scaled_int8_quant,
    ),
    _of_c(
        "dynamic_scaled_int8_quant(Tensor! result, Tensor input, Tensor! scale, Tensor!? azp)",
        of_integers.dynamic_scaled_int8_quant,
    ),
    _of_c(
        "cutlass_scaled_mm(Tensor! out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor? bias)",
        of_integers.cutlass_scaled_mm,
    ),
    _of_c(
        "cutlass_scaled_mm_azp(Tensor! out, Tensor a, Tensor b, Tensor a_scales, Tensor b_scales, Tensor azp_adj, "
        "Tensor? azp, Tensor? bias)",
        of_integers.cutlass_scaled_mm_azp,
    ),
    Kernel("_C", "weak_ref_tensor(Tensor input) -> Tensor", by.weak_ref_tensor),
    Kernel(
        "_moe_C",
        "topk_softmax(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, "
        "Tensor gating_output, bool renormalize, Tensor? bias, Tensor? is_padding=None) -> ()",
        by.topk_softmax,
    ),
    Kernel(
        "_moe_C",
        "topk_sigmoid(Tensor! topk_weights, Tensor! topk_indices, Tensor! token_expert_indices, "
        "Tensor gating_output, bool renormalize, Tensor? bias, float routed_scaling_factor, "
        "Tensor? is_padding=None) -> ()",
        by.topk_sigmoid,
    ),
    Kernel(
        "_moe_C",
        "grouped_topk(Tensor scores, int n_group, int topk_group, int topk, bool renormalize, "
        "float routed_scaling_factor, Tensor bias, int scoring_func) -> (Tensor, Tensor)",
        by.grouped_topk,
    ),
    Kernel(
        "_moe_C",
        "moe_sum(Tensor input, Tensor! output, Tensor? topk_ids=None, Tensor? expert_map=None) -> ()",
        by.moe_sum,
    ),
    Kernel(
        "_moe_C",
        "moe_align_block_size(Tensor topk_ids, int num_experts, int block_size, Tensor! sorted_token_ids, "
        "Tensor! experts_ids, Tensor! num_tokens_post_pad, Tensor? maybe_expert_map, "
        "Tensor(a!)? scatter_idx=None) -> ()",
        by.moe_align_block_size,
    ),
    Kernel(
        "_C_cache_ops",
        "concat_and_cache_mla(Tensor kv_c, Tensor k_pe, Tensor! kv_cache, Tensor slot_mapping, "
        "str kv_cache_dtype, Tensor scale, bool skip_scale=False) -> ()",
        by.concat_and_cache_mla,
    ),
    Kernel(
        "_C_cache_ops",
        "gather_and_maybe_dequant_cache(Tensor src_cache, Tensor! dst, Tensor block_table, Tensor cu_seq_lens, "
        "Tensor token_to_seq, int num_tokens, str kv_cache_dtype, Tensor scale, Tensor? seq_starts) -> ()",
        latent.gather_and_maybe_dequant_cache,
    ),
    _of_c(
        "apply_repetition_penalties_(Tensor! logits, Tensor prompt_mask, Tensor output_mask, "
        "Tensor repetition_penalties)",
        by.apply_repetition_penalties_,
    ),
    # Named by vLLM's compiler passes.
    _of_c(
        "rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor weight, Tensor scale, float epsilon)"
    ),
    _of_c(
        "fused_add_rms_norm_static_fp8_quant(Tensor! result, Tensor input, Tensor! residual, Tensor weight, "
        "Tensor scale, float epsilon)"
    ),
    _of_c(
        "rms_norm_dynamic_per_token_quant(Tensor! result, Tensor input, Tensor weight, Tensor! scale, "
        "float epsilon, Tensor? scale_ub, Tensor!? residual)"
    ),
    _of_c("silu_and_mul_quant(Tensor! result, Tensor input, Tensor scale)"),
    _of_c(
        "silu_and_mul_per_block_quant(Tensor! out, Tensor input, Tensor! scales, int group_size, "
        "Tensor? scale_ub=None, bool is_scale_transposed=False)"
    ),
    _of_c(
        "fused_qk_norm_rope(Tensor! qkv, int num_heads_q, int num_heads_k, int num_heads_v, int head_dim, "
        "float eps, Tensor q_weight, Tensor k_weight, Tensor cos_sin_cache, bool is_neox, Tensor position_ids, "
        "int forced_token_heads_per_warp=-1)"
    ),
)
