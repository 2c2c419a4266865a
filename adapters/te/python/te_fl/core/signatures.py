"""The names of TransformerEngine's operators, and the arguments that each operator writes into.

The names are the union of TransformerEngine-FL's interfaces for TransformerEngine 2.9 and 2.14.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Every operator of either interface, sorted.
OPERATORS: tuple[str, ...] = (
    "bgrad_group_quantize",
    "bgrad_quantize",
    "bulk_overlap_ag_with_external_gemm",
    "clamped_dswiglu",
    "clamped_swiglu",
    "compute_amax",
    "convert_bshd_to_thd",
    "convert_host_pointers_to_tensor",
    "convert_thd_to_bshd",
    "copy_to_kv_cache",
    "create_comm_overlap",
    "create_comm_overlap_helper",
    "create_comm_overlap_p2p",
    "create_fp8_tensor_meta",
    "create_nvshmem_tensor",
    "dbias_dgelu",
    "dbias_dqgelu",
    "dbias_drelu",
    "dbias_dsilu",
    "dbias_dsrelu",
    "dequantize",
    "dgeglu",
    "dgelu",
    "dglu",
    "dqgeglu",
    "dqgelu",
    "dreglu",
    "drelu",
    "dropout_bwd",
    "dropout_fwd",
    "dsilu",
    "dsreglu",
    "dsrelu",
    "dswiglu",
    "fa_prepare_bwd",
    "fa_prepare_fwd",
    "fp8_block_scaling_compute_partial_amax",
    "fp8_block_scaling_partial_cast",
    "fp8_transpose",
    "fused_amax_and_scale_update_after_reduction",
    "fused_attn_bwd",
    "fused_attn_fwd",
    "fused_moe_aux_loss_bwd",
    "fused_moe_aux_loss_fwd",
    "fused_multi_row_padding",
    "fused_multi_row_unpadding",
    "fused_qkv_rope_backward",
    "fused_qkv_rope_forward",
    "fused_rope_backward",
    "fused_rope_forward",
    "fused_score_for_moe_aux_loss_bwd",
    "fused_score_for_moe_aux_loss_fwd",
    "fused_topk_with_score_function_bwd",
    "fused_topk_with_score_function_fwd",
    "geglu",
    "gelu",
    "generic_gemm",
    "get_attention_backend",
    "get_cublasLt_version",
    "get_cudnn_version",
    "get_device_pointer_for_data_and_scales",
    "get_flash_attention_class",
    "get_fused_attn_backend",
    "get_num_cublas_streams",
    "glu",
    "group_quantize",
    "grouped_swizzle_for_gemm",
    "init_nvshmem_backend",
    "layernorm_bwd",
    "layernorm_fwd",
    "moe_permute_bwd",
    "moe_permute_fwd",
    "moe_unpermute_bwd",
    "moe_unpermute_fwd",
    "multi_tensor_adam",
    "multi_tensor_adam_capturable",
    "multi_tensor_adam_capturable_master",
    "multi_tensor_adam_fp8",
    "multi_tensor_adam_param_remainder",
    "multi_tensor_compute_scale_and_scale_inv",
    "multi_tensor_compute_scale_inv_e8m0",
    "multi_tensor_l2norm",
    "multi_tensor_quantize",
    "multi_tensor_scale",
    "multi_tensor_scale_tensor",
    "multi_tensor_sgd",
    "multi_tensor_unscale_l2norm",
    "mxfp8_scaling_compute_partial_amax",
    "mxfp8_scaling_partial_cast",
    "nvfp4_2d_compute_partial_amax",
    "nvfp4_2d_multi_tensor_transpose",
    "nvfp4_2d_partial_cast",
    "nvfp4_compute_global_scale",
    "nvfp4_compute_per_block_scale",
    "nvfp4_data_transpose",
    "nvfp4_expand_scale_to_fp8",
    "nvfp4_fused_scale",
    "nvfp4_multi_tensor_2d_partial_cast",
    "nvfp4_multi_tensor_compute_partial_amax",
    "nvfp4_multi_tensor_fused_scale",
    "nvshmem_finalize",
    "nvshmem_send_on_current_stream",
    "nvshmem_wait_on_current_stream",
    "qgeglu",
    "qgelu",
    "quantize",
    "reglu",
    "relu",
    "rmsnorm_bwd",
    "rmsnorm_bwd_add",
    "rmsnorm_fwd",
    "scaled_aligned_causal_masked_softmax_backward",
    "scaled_aligned_causal_masked_softmax_forward",
    "scaled_masked_softmax_backward",
    "scaled_masked_softmax_forward",
    "scaled_softmax_backward",
    "scaled_softmax_forward",
    "scaled_upper_triang_masked_softmax_backward",
    "scaled_upper_triang_masked_softmax_forward",
    "silu",
    "split_quantize",
    "splits_to_offsets",
    "sreglu",
    "srelu",
    "swap_first_dims",
    "swiglu",
    "swizzle_scales_for_gemm_",
    "te_general_grouped_gemm",
    "te_general_grouped_gemm_for_discrete_in",
    "te_general_grouped_gemm_for_discrete_out",
    "te_general_grouped_gemm_for_grouped_tensor",
    "thd_get_partitioned_indices",
    "thd_grad_correction",
    "thd_out_correction",
    "thd_read_half_tensor",
    "thd_read_second_half_lse",
    "thd_second_half_lse_correction",
)

# Operators that always write into their arguments.
_WRITE_ALWAYS = frozenset(
    {
        "bulk_overlap_ag_with_external_gemm",
        "compute_amax",
        "copy_to_kv_cache",
        "fp8_block_scaling_compute_partial_amax",
        "fp8_block_scaling_partial_cast",
        "fused_amax_and_scale_update_after_reduction",
        "fused_multi_row_padding",
        "fused_multi_row_unpadding",
        "mxfp8_scaling_compute_partial_amax",
        "mxfp8_scaling_partial_cast",
        "nvshmem_send_on_current_stream",
        "swap_first_dims",
        "swizzle_scales_for_gemm_",
        "te_general_grouped_gemm",
        "te_general_grouped_gemm_for_discrete_in",
        "te_general_grouped_gemm_for_discrete_out",
        "te_general_grouped_gemm_for_grouped_tensor",
        "thd_grad_correction",
        "thd_out_correction",
        "thd_second_half_lse_correction",
    }
)
_WRITE_ALWAYS_PREFIXES = ("multi_tensor_", "nvfp4_", "scaled_")

# Operators that write into those of these arguments that are not None: (position, names).
_WRITE_INTO: Mapping[str, tuple[tuple[int, tuple[str, ...]], ...]] = {
    "quantize": ((2, ("output",)),),
    "generic_gemm": (
        (4, ("D",)),
        (10, ("gelu_in",)),
        (16, ("comm_overlap",)),
        (18, ("extra_output",)),
    ),
    "rmsnorm_fwd": ((3, ("ln_out",)),),
    "layernorm_fwd": ((4, ("ln_out",)),),
    "dropout_fwd": ((2, ("out",)),),
    "dropout_bwd": ((3, ("grad_input",)),),
    "fp8_transpose": ((2, ("out",)),),
    "nvfp4_data_transpose": ((1, ("out",)),),
}


def known(op: str) -> bool:
    """Whether ``op`` is an operator of TransformerEngine, which :func:`writes` can answer for."""
    return op in _KNOWN


def writes(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Whether this call of a :func:`known` operator writes into its arguments.

    The backward softmaxes count as writing: TransformerEngine's kernels reuse the incoming gradient.
    """
    if op in _WRITE_ALWAYS or (
        op.startswith(_WRITE_ALWAYS_PREFIXES) and not op.endswith("_forward")
    ):
        return op != "multi_tensor_l2norm"
    for position, names in _WRITE_INTO.get(op, ()):
        if len(args) > position and args[position] is not None:
            return True
        if any(kwargs.get(name) is not None for name in names):
            return True
    return False


_KNOWN = frozenset(OPERATORS)
