"""Operators of TransformerEngine in plain torch, for tensors of any device.

Each operator takes its arguments positionally as TransformerEngine 2.9, 2.14 and 2.17 pass them, or by the names
of any of them. It declines an unsupported call with :class:`flagos.UnsupportedError` before it writes
anything, and the plan tries the next implementation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from te_fl.operators import (
    activation,
    attention,
    attention_backend,
    dropout,
    flash_attention,
    gemm,
    multi_tensor,
    normalization,
    permutation,
    quantization,
    rope,
    softmax,
)

#: The id of every implementation of this package.
IMPL_ID = "default.flagos_rs"
#: Lower than the priority of TransformerEngine-FL's Triton kernels (150), which win where they can run.
PRIORITY = 100

OPERATORS: dict[str, Callable[..., Any]] = {
    **activation.OPERATORS,
    "fused_attn_bwd": attention.fused_attn_bwd,
    "fused_attn_fwd": attention.fused_attn_fwd,
    "get_flash_attention_class": flash_attention.get_flash_attention_class,
    "dropout_bwd": dropout.dropout_bwd,
    "dropout_fwd": dropout.dropout_fwd,
    "generic_gemm": gemm.generic_gemm,
    "te_general_grouped_gemm": gemm.te_general_grouped_gemm,
    "multi_tensor_adam": multi_tensor.multi_tensor_adam,
    "multi_tensor_adam_capturable": multi_tensor.multi_tensor_adam_capturable,
    "multi_tensor_adam_capturable_master": multi_tensor.multi_tensor_adam_capturable_master,
    "multi_tensor_adam_fp8": multi_tensor.multi_tensor_adam_fp8,
    "multi_tensor_adam_param_remainder": multi_tensor.multi_tensor_adam_param_remainder,
    "multi_tensor_l2norm": multi_tensor.multi_tensor_l2norm,
    "multi_tensor_scale": multi_tensor.multi_tensor_scale,
    "multi_tensor_scale_tensor": multi_tensor.multi_tensor_scale_tensor,
    "multi_tensor_sgd": multi_tensor.multi_tensor_sgd,
    "multi_tensor_unscale_l2norm": multi_tensor.multi_tensor_unscale_l2norm,
    "layernorm_bwd": normalization.layernorm_bwd,
    "layernorm_fwd": normalization.layernorm_fwd,
    "rmsnorm_bwd": normalization.rmsnorm_bwd,
    "rmsnorm_bwd_add": normalization.rmsnorm_bwd_add,
    "rmsnorm_fwd": normalization.rmsnorm_fwd,
    "moe_permute_bwd": permutation.moe_permute_bwd,
    "moe_permute_fwd": permutation.moe_permute_fwd,
    "moe_unpermute_bwd": permutation.moe_unpermute_bwd,
    "moe_unpermute_fwd": permutation.moe_unpermute_fwd,
    "bgrad_quantize": quantization.bgrad_quantize,
    "compute_amax": quantization.compute_amax,
    "dequantize": quantization.dequantize,
    "fp8_transpose": quantization.fp8_transpose,
    "multi_tensor_compute_scale_and_scale_inv": quantization.multi_tensor_compute_scale_and_scale_inv,
    "multi_tensor_quantize": quantization.multi_tensor_quantize,
    "quantize": quantization.quantize,
    "split_quantize": quantization.split_quantize,
    "swap_first_dims": quantization.swap_first_dims,
    "fused_qkv_rope_backward": rope.fused_qkv_rope_backward,
    "fused_qkv_rope_forward": rope.fused_qkv_rope_forward,
    "fused_rope_backward": rope.fused_rope_backward,
    "fused_rope_forward": rope.fused_rope_forward,
    "scaled_aligned_causal_masked_softmax_backward": softmax.scaled_softmax_backward,
    "scaled_aligned_causal_masked_softmax_forward": softmax.scaled_aligned_causal_masked_softmax_forward,
    "scaled_masked_softmax_backward": softmax.scaled_softmax_backward,
    "scaled_masked_softmax_forward": softmax.scaled_masked_softmax_forward,
    "scaled_softmax_backward": softmax.scaled_softmax_backward,
    "scaled_softmax_forward": softmax.scaled_softmax_forward,
    "scaled_upper_triang_masked_softmax_backward": softmax.scaled_softmax_backward,
    "scaled_upper_triang_masked_softmax_forward": softmax.scaled_upper_triang_masked_softmax_forward,
}

#: What modules ask before they call operators. One answer holds for an operator and its plain formula.
QUESTIONS: dict[str, Callable[..., Any]] = {
    "get_fused_attn_backend": attention_backend.get_fused_attn_backend,
    "get_num_cublas_streams": gemm.get_num_cublas_streams,
}
