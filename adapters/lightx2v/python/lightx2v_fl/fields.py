"""The fields of a LightX2V configuration that choose kernels and devices, with their valid values.

LightX2V has over a thousand fields, most of them of one model. Fields not listed here are not checked.
"""

from __future__ import annotations

from dataclasses import dataclass

from lightx2v_fl import tables


@dataclass(frozen=True)
class Choice:
    """A field that names a kernel."""

    ours: str
    #: Other kernels that take tensors of any device, or belong to one model.
    portable: tuple[str, ...]
    #: Kernels that need tensors of the chip's own device, and packages of its maker.
    native: tuple[str, ...]
    #: LightX2V's default when the field is missing; None when it has no default or requires the field.
    default: str | None = None


_ATTENTION = Choice(
    tables.ATTENTION,
    ("torch_sdpa",),
    (
        "aiter_attn", "draft_attn", "dreamzero_cross_fa", "dreamzero_fa2", "dynamic_sparse_attn",
        "flash_attn2", "flash_attn3", "flash_attn4", "flash_attn_enflame_gcu",
        "flash_attn_hygon_dcu", "flex_attn", "general_sparse_attn", "iluvatar_flash_attn",
        "intel_xpu_cute_attn", "intel_xpu_flash_attn", "metax_sage_attn2", "mlu_flash_attn",
        "mlu_sage_attn", "nbhd_attn", "nbhd_attn_flashinfer", "npu_flash_attn", "radial_attn",
        "rainfusion_attn", "sage_attn2", "sage_attn2_k_int8_v_fp8", "sage_attn3", "sol_attn",
        "sparge_attn", "spas_flash_attn4", "spas_sage_attn2", "spas_sage_attn3", "svg2_attn",
        "svg_attn", "swiftvr_mfswa",
    ),
)  # fmt: skip
_LINEAR = Choice(
    tables.LINEAR,
    (
        "Default", "Default-ForceFp32", tables.FP8_LINEAR, tables.INT8_LINEAR, "gguf-BF16",
        "gguf-Q3_K_M", "gguf-Q3_K_S", "gguf-Q4_0", "gguf-Q4_1", "gguf-Q4_K_M", "gguf-Q4_K_S",
        "gguf-Q5_0", "gguf-Q5_1", "gguf-Q5_K_M", "gguf-Q5_K_S", "gguf-Q6_K", "gguf-Q8_0",
    ),
    (
        "fp8-b128-deepgemm", "fp8-intel-xpu", "fp8-musa", "fp8-pertensor", "fp8-q8f", "fp8-sgl",
        "fp8-torchao", "fp8-triton", "fp8-vllm", "int4-g128-marlin", "int8-iluvatar", "int8-npu",
        "int8-q8f", "int8-sgl", "int8-tmo", "int8-torchao", "int8-triton", "int8-vllm",
        "int8-vllm-hygon-dcu", "intel_xpu_fp8", "intel_xpu_mm", "mxfp4", "mxfp6-mxfp8", "mxfp8",
        "nvfp4", "nvfp4-split-n-workaround",
    ),
)  # fmt: skip
_TORCH_RMS = ("torch", "torch_native", "fp32_variance", "fp32_variance_qwen", "self_forcing")

#: Fields that name a kernel.
CHOICES: dict[str, Choice] = {
    "self_attn_1_type": _ATTENTION,
    "cross_attn_1_type": _ATTENTION,
    "cross_attn_2_type": _ATTENTION,
    "attn_type": _ATTENTION,
    "rms_norm_type": Choice(
        tables.RMS_NORM,
        _TORCH_RMS,
        (
            "sgl-kernel", "one-pass", "iluvatar_rms_norm", "intel_xpu", "ltx25_fast",
            "mlu_rms_norm", "npu_rms_norm",
        ),
        default="sgl-kernel",
    ),
    "tp_rms_norm_type": Choice(
        tables.RMS_NORM, ("TensorParallel", "TensorParallelFP32"), ("IntelTensorParallelFP32",)
    ),
    "tp_mm_type": Choice("TensorParallel", (), ("IntelTensorParallel",)),
    "layer_norm_type": Choice(
        tables.LAYER_NORM, ("torch",), ("Triton", "gcu_layer_norm", "npu_layer_norm")
    ),
    "rope_type": Choice(
        tables.ROPE,
        (
            "torch_complex_rope", "torch_real_rope", "wan_causal_rope", "cosmos3_rope",
            "dreamzero_rope", "mmrope3d", "rope3d",
        ),
        (
            "flashinfer_rope", "gcu_wan_rope", "iluvatar_wan_rope", "ltx25_split_rope",
            "minimax_h3_triton_rope", "minimax_h3_xpu_rope", "mlu_rope", "npu_rope",
        ),
        default="flashinfer_rope",
    ),
    "modulate_type": Choice("torch", (), ("triton",), default="triton"),
    "dit_quant_scheme": _LINEAR,
    "moe_backend": Choice(
        tables.MOE,
        ("torch_expert_loop",),
        ("flashinfer", "torch_grouped_mm", "multi_micro", "npu_grouped_mm", "metax_mctlass_moe"),
    ),
}  # fmt: skip

#: The types of the values of fields.
KINDS: dict[str, type | tuple[type, ...]] = {
    "infer_steps": int,
    "target_video_length": int,
    "target_height": int,
    "target_width": int,
    "text_len": int,
    "sample_guide_scale": (int, float, list),
    "sample_shift": (int, float, list),
    "enable_cfg": bool,
    "cpu_offload": bool,
    "t5_cpu_offload": bool,
    "clip_cpu_offload": bool,
    "vae_cpu_offload": bool,
    "offload_granularity": str,
    "lazy_load": bool,
    "num_disk_workers": int,
    "dit_quantized": bool,
    "dit_quantized_ckpt": str,
    "dit_original_ckpt": str,
    "t5_quantized": bool,
    "t5_quant_scheme": str,
    "clip_quantized": bool,
    "clip_quant_scheme": str,
    "use_tiling_vae": bool,
    "feature_caching": str,
    "rope_chunk": bool,
    "rope_chunk_size": int,
    "clean_cuda_cache": bool,
    "lora_dynamic_apply": bool,
    "lora_configs": list,
    "parallel": dict,
}

#: Fields that must be at least 1.
POSITIVE = frozenset(
    {"infer_steps", "target_video_length", "target_height", "target_width", "text_len"}
)

#: Fields of `parallel`.
PARALLEL_KINDS: dict[str, type | tuple[type, ...]] = {
    "seq_p_size": int,
    "cfg_p_size": int,
    "tensor_p_size": int,
    "seq_p_attn_type": str,
    "seq_p_fp8_comm": bool,
    "seq_p_fp4_comm": bool,
    "seq_p_quant_scheme": str,
    "seq_p_head_parallel": bool,
    "seq_p_tensor_fusion": bool,
    "seq_p_prepost_backend": str,
    "seq_p_a2a_backend": str,
    "tp_load_mode": str,
    "vae_parallel": bool,
    "phase_aware": bool,
}

#: Fields of LightX2V with names similar to those above, which are not misspellings.
LOOKALIKES = frozenset(
    {
        "attn_rms_norm_type", "byt5_cpu_offload", "clip_quantized_ckpt", "cross_attn_type",
        "pe_cpu_offload", "sample_text_guide_scale", "self_attn_type", "siglip_cpu_offload",
        "t5_original_ckpt", "t5_quantized_ckpt",
    }
)  # fmt: skip

#: Fields that take one of a few words.
WORDS: dict[str, tuple[str, ...]] = {
    "offload_granularity": ("block", "phase", "model"),
    "feature_caching": (
        "NoCaching", "Tea", "TaylorSeer", "Ada", "Custom", "FirstBlock", "DualBlock",
        "DynamicBlock", "Mag",
    ),
    "parallel.seq_p_attn_type": ("ulysses", "ulysses-4090", "ring", "kv_all_gather"),
    "parallel.seq_p_prepost_backend": ("torch", "triton"),
    "parallel.seq_p_a2a_backend": ("torch", "round_robin"),
    "parallel.seq_p_quant_scheme": ("fp8", "fp4"),
    "parallel.tp_load_mode": ("broadcast", "local"),
}  # fmt: skip

#: The required fields of Wan 2.1 and 2.2.
WAN: tuple[str, ...] = (
    "infer_steps",
    "target_video_length",
    "sample_guide_scale",
    "sample_shift",
    "self_attn_1_type",
    "cross_attn_1_type",
    "cross_attn_2_type",
)
#: Further required fields of text to video, when the command line has no --target_shape.
WAN_T2V: tuple[str, ...] = ("target_height", "target_width")
