"""Unsupported SGLang options. Each rule names the option, the reason and the remedy."""

from __future__ import annotations

import logging
import os
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import torch

from flagos import _core
from flagos_serving.declaration import device_type
from flagos_serving.refusals import Problem, Refusals
from sglang_flagos import operators, releases
from sglang_flagos.engine import triton_missing
from sglang_flagos.operators.attention import by_flash_attention

logger = logging.getLogger(__name__)
REFUSALS = Refusals()
collected = REFUSALS.collected

_LEAVE = "leave it out"
FULL, DISABLED = "full", "disabled"  # SGLang's names of ways to capture graphs
# Options that are on where they are not false, with the reason why flagos has none of it.
SWITCHES = {
    "enable_hierarchical_cache": "its copies between device and host are kernels of sgl_kernel",
    "enable_hisparse": "its kernels are for CUDA",
    "enable_lmcache": "LMCache copies CUDA's memory",
    "enable_flexkv": "FlexKV copies CUDA's memory",
    "enable_unified_memory": "its pool of pages is CUDA's virtual memory",
    "enable_page_major_kv_layout": "attention on flagos reads the cache token by token",
    "enable_torch_compile": "it has not been tried on flagos",
    "enable_dp_attention": "it has not been tried on flagos",
    "enable_dp_lm_head": "it goes with --enable-dp-attention, which has not been tried on flagos",
    "enable_two_batch_overlap": "it shares streams with kernels of CUDA",
    "enable_single_batch_overlap": "it shares multiprocessors with kernels of CUDA",
    "enable_symm_mem": "it is memory of NCCL's own",
    "enable_torch_symm_mem": "it is CUDA's memory of peers",
    "enable_mscclpp": "it is a library of CUDA's collectives",
    "enable_nccl_nvls": "it is a way of NCCL's; collectives run over the process group of flagos",
    "enable_quant_communications": "its kernels are for CUDA",
    "enable_flashinfer_allreduce_fusion": "its kernels are FlashInfer's, for CUDA",
    "enable_aiter_allreduce_fusion": "its kernels are ROCm's",
    "enable_fused_qk_norm_rope": "its kernel is for CUDA",
    "enable_fused_moe_sum_all_reduce": "its kernel is for CUDA",
    "enable_deterministic_inference": "its kernels that do not depend on the batch are Triton's, and its attention is "
    "of other backends (`sampling_seed` needs it)",
    "enable_eplb": "experts that move between ranks have not been tried on flagos",
    "enable_prefill_cp": "attention on flagos takes prompts whole",
    "enable_prefill_context_parallel": "attention on flagos takes prompts whole",
    "enable_dsa_prefill_context_parallel": "attention on flagos takes prompts whole",
    "enable_pdmux": "it divides CUDA's multiprocessors",
    "enable_multi_layer_eagle": "it is speculation, whose kernels are Triton's and sgl_kernel's",
    "enable_mis": "its masks are FlashInfer's",
    "enable_profile_cuda_graph": "it records the memory of torch.cuda",
    "enable_layerwise_nvtx_marker": "NVTX is CUDA's",
    "enable_waterfill": "it has not been tried on flagos",
    "enable_elastic_expert_backup": "it has not been tried on flagos",
    "enable_return_routed_experts": "it has not been tried on flagos",
    "pre_warm_nccl": "it calls NCCL by torch.cuda; collectives run over the process group of flagos",
    "prefill_only_disable_kv_cache": "attention on flagos reads keys from the cache",
    "use_ray": "Ray does not know flagos devices",
    "encoder_only": "models with images have not been tried on flagos",
    "language_only": "models with images have not been tried on flagos",
    "rl_on_policy_target": "its kernels that do not depend on the batch are Triton's",
    "dllm_algorithm": "diffusion of language has not been tried on flagos",
    "torchao_config": "torchao's kernels have not been tried on flagos",
    "kt_weight_path": "KTransformers' experts are the CPU's",
    "elastic_ep_backend": "it has not been tried on flagos",
    "debug_cuda_graph": "it breaks graphs on CUDA's own streams",
    "lora_use_virtual_experts": "adapters of experts have kernels of Triton",
    # Of 0.5.23.
    "enable_nvidia_megakernel": "its kernel is for CUDA",
    "enable_amd_monokernel": "its kernels are ROCm's",
    "enable_w4a4_mxfp4_megamoe": "its kernels are for CUDA",
    "enable_megamoe_for_layernorm_sp": "its kernels are for CUDA",
    "enable_lean_attention": "it is a kernel of another backend of attention",
    "enable_kv_cache_sharding": "SGLang has it for its own platforms alone",
    "enable_paged_experts": "weights on the host have not been tried on flagos",
    "enable_unified_cache_external_linker": "it copies CUDA's memory",
    "enable_pd_role_switch": "prefill and decode on different servers exchange CUDA's memory",
    "enable_cp_tp_group_sharing": "attention on flagos takes prompts whole",
    "enable_layernorm_sp": "it has not been tried on flagos",
    "enable_shared_experts_attn_tp": "it goes with DP attention, which has not been tried on flagos",
    "enable_dense_mlp_attn_tp": "it goes with DP attention, which has not been tried on flagos",
    "enable_tp_lm_head_all_to_all": "it goes with DP attention, which has not been tried on flagos",
    "enable_watermark": "it has not been tried on flagos",
    "enable_return_aux_hidden_states": "it has not been tried on flagos",
    "language_model_only": "models with images have not been tried on flagos",
    "uno_lora_path": "it is speculation, whose kernels are Triton's and sgl_kernel's",
}
# Option → the values that flagos serves beside SGLang's default, the reason, and what to write.
VALUES: dict[str, tuple[tuple[Any, ...], str, str]] = {
    "sampling_backend": ((None, "pytorch"), "its kernels are for CUDA", "write pytorch"),
    "grammar_backend": (
        (None, "xgrammar", "llguidance", "none"),
        "it has not been tried on flagos",
        "write xgrammar or llguidance",
    ),
    "moe_runner_backend": (
        ("auto",),
        "on flagos experts are the operator sglang::fused_experts, and the plan chooses its kernel",
        "leave it out; `flagos explain sglang::fused_experts` lists the kernels",
    ),
    "moe_a2a_backend": (("none",), "its exchange of tokens has kernels for CUDA", "write none"),
    "mm_attention_backend": ((None,), "models with images have not been tried on flagos", _LEAVE),
    "radix_cache_backend": ((None,), "it has not been tried on flagos", _LEAVE),
    "fp8_gemm_runner_backend": (
        ("auto",),
        "products of 8 bits are torch._scaled_mm here",
        "write auto",
    ),
    "disaggregation_mode": (
        ("null",),
        "prefill and decode on different servers exchange CUDA's memory",
        "write null",
    ),
    "kv_cache_dtype": (
        ("auto", "fp8_e4m3", "fp8_e5m2", "bfloat16", "bf16"),
        "flagos has no kernels for it",
        "write auto, fp8_e4m3 or fp8_e5m2",
    ),
    "decoupled_spec_role": (("null",), "speculation is not served on flagos", "write null"),
    "kv_canary": (("none",), "its kernels are Triton's", "write none"),
    "weight_cache_mode": (("off",), "it shares CUDA's memory between processes", "write off"),
    "cpu_offload_gb": ((0,), "weights on the host have not been tried on flagos", "write 0"),
    "offload_group_size": ((-1,), "weights on the host have not been tried on flagos", _LEAVE),
    "attn_cp_size": ((1,), "attention on flagos takes prompts whole", "write 1, or --tp-size"),
    "dcp_size": ((1,), "attention on flagos takes sequences whole", "write 1, or --tp-size"),
    "attn_dp_size": (
        (1,),
        "DP attention (--enable-dp-attention, too) has not been tried on flagos",
        "write 1, or --dp-size",
    ),
    "bf16_gemm_backend": (
        ("auto", "torch"),
        "products are torch's operators, and the plan chooses their kernels",
        "write auto",
    ),
    "init_expert_location": (
        ("trivial",),
        "experts that move between ranks have not been tried",
        "write trivial",
    ),
    "model_impl": (
        ("auto", "sglang", "transformers"),
        "MindSpore does not know flagos devices",
        "write auto",
    ),
    "startup_weight_load_mode": (
        ("serial",),
        "it loads weights beside the capture of CUDA's graphs",
        "write serial",
    ),
    "dwdp_size": ((1,), "it has not been tried on flagos", "write 1"),
    "moe_dp_size": ((1,), "it has not been tried on flagos", "write 1"),
    "ep_num_redundant_experts": (
        (0,),
        "experts that move between ranks have not been tried",
        "write 0",
    ),
    "remote_instance_weight_loader_backend": (("nccl",), "it copies CUDA's memory", _LEAVE),
}
_LOADED = (
    "bitsandbytes",
    "flash_rl",
    "gguf",
    "layered",
    "private",
    "remote_instance",
    "sharded_state",
)
# Models that multiply by the factor of their experts themselves where `is_cuda()` is false.
_OWN_FACTOR = ("Glm4MoeForCausalLM",)
# Encoders: every token sees every other, so that prompts are neither cut into parts nor continued from a cache.
_ENCODERS = (
    "BertModel",
    "BertForSequenceClassification",
    "Contriever",
    "XLMRobertaModel",
    "XLMRobertaForSequenceClassification",
)
# With gates of experts that `sglang::fused_experts` does not know.
_OTHER_GATES = ("GptOssForCausalLM",)


def prepare(args: Any) -> None:
    """Refuses what flagos does not serve in `ServerArgs`, and chooses the rest. Raises ValueError."""
    REFUSALS.report(problems(args))
    if _core.vendor() not in ("host", "cuda"):
        logger.warning(
            "SGLang on flagos has been run on the vendors host and cuda, and vendor %s serves here",
            _core.vendor(),
        )
    args.device = "flagos"
    if args.lora_backend == "csgmv" and triton_missing() is not None:  # SGLang's default, of Triton
        args.lora_backend = "torch_native"
    graphs = args.cuda_graph_config
    if graphs.decode.backend != DISABLED and (reading := _reading_on_the_host(args)):
        logger.info("SGLang on flagos decodes without graphs: %s", ", ".join(reading))
        graphs.decode.backend = DISABLED
    if _config(args) and set(_config(args).hf_config.architectures or ()) & {*_ENCODERS}:
        args.chunked_prefill_size, args.disable_radix_cache = -1, True
    args.disable_custom_all_reduce = True
    args.sampling_backend = "pytorch"


def attention(args: Any) -> tuple[str, ...]:
    """The operators of attention that will serve the model, that of decoding first."""
    model = _config(args)
    types = {"auto": model and model.dtype, "bf16": torch.bfloat16, "bfloat16": torch.bfloat16}
    by_table = triton_missing() is not None or (
        model and by_flash_attention(model, types.get(args.kv_cache_dtype))
    )
    return ("paged_attention",) if by_table else ("decode_attention", "extend_attention")


def _reading_on_the_host(args: Any) -> list[str]:
    """The references among what decodes on CUDA: no graph can have them."""
    if device_type() != "cuda":
        return []
    model = _config(args)
    names = [attention(args)[0], *(["fused_experts"] if model and _has_experts(model) else [])]
    winners = [getattr(operators, name).winner for name in names]
    return [f"{winner} reads on the host" for winner in winners if winner.startswith("reference.")]


def problems(args: Any) -> Iterator[Problem]:
    """Everything in `ServerArgs` that flagos does not serve."""
    for rule in RULES:
        yield from rule(args)


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _switches(args: Any) -> Iterator[Problem]:
    for name, reason in SWITCHES.items():
        if getattr(args, name, None) not in (None, False, ""):
            yield Problem(_flag(name), reason, _LEAVE)


def _values(args: Any) -> Iterator[Problem]:
    for name, (served, reason, remedy) in VALUES.items():
        given = getattr(args, name, served[0])
        if given not in served:
            yield Problem(f"{_flag(name)} {given}", reason, remedy)


def _device(args: Any) -> Iterator[Problem]:
    if str(args.device).partition(":")[0] != "flagos":
        yield Problem(
            f"--device {args.device}", "SGLANG_PLATFORM=flagos serves flagos", "write flagos"
        )


def _devices(args: Any) -> Iterator[Problem]:
    ranks, present = ranks_here(args), torch.accelerator.device_count()
    last = args.base_gpu_id + (ranks - 1) * args.gpu_id_step
    if args.nnodes > 1:
        yield Problem(
            f"--nnodes {args.nnodes}", "ranks of several machines have not been tried", "write 1"
        )
    elif ranks > 1 and last >= present and args.base_gpu_id == 0 and args.gpu_id_step == 1:
        sizes = {"--tp-size": args.tp_size, "--pp-size": args.pp_size, "--dp-size": args.dp_size}
        yield Problem(
            " ".join(name for name, size in sizes.items() if size > 1),
            f"{ranks} ranks need {ranks} flagos devices, and there are {present}",
            f"write at most {present} in all, or on the host vendor set FLAGOS_HOST_DEVICES={ranks}",
        )
    elif not 0 <= last < present:
        yield Problem(
            f"--base-gpu-id {args.base_gpu_id}",
            f"device {last} is not there, of {present} flagos devices from 0 on",
            "write a lower one; `flagos devices` shows them",
        )


def ranks_here(args: Any) -> int:
    """The ranks of this machine, of all replicas."""
    return int(args.tp_size * args.pp_size * args.dp_size)


def _attention(args: Any) -> Iterator[Problem]:
    for name in ("attention_backend", "prefill_attention_backend", "decode_attention_backend"):
        given = getattr(args, name)
        if given not in (None, "flagos"):
            yield Problem(
                f"{_flag(name)} {given}",
                "on flagos attention is the operator sglang::paged_attention, and the plan chooses its kernel",
                "leave it out; `flagos explain sglang::paged_attention` lists the kernels, and flagos.toml routes it",
            )


def _lora(args: Any) -> Iterator[Problem]:
    known = ("csgmv", "torch_native") + (() if triton_missing() else ("triton",))
    if args.lora_backend not in known:
        why = f"its kernels are Triton's: {triton_missing()}"
        yield Problem(f"--lora-backend {args.lora_backend}", why, "write torch_native")
    asked = args.enable_lora or args.lora_paths
    if asked and _config(args) is not None and _has_experts(_config(args)):
        yield Problem(
            "--enable-lora",
            "SGLang's adapters of experts are for its own experts' kernels, which sglang::fused_experts replaces",
            "leave it out, or take a model without experts",
        )
    if asked and args.enable_lora_overlap_loading:
        yield Problem("--enable-lora-overlap-loading", "it has not been tried on flagos", _LEAVE)


def _speculation(args: Any) -> Iterator[Problem]:
    if args.speculative_algorithm is None:
        return
    if args.speculative_algorithm.upper() == "NGRAM":
        reason = "SGLang itself has n-grams on its own devices alone"
    else:
        reason = f"its kernels are Triton's and sgl_kernel's ({triton_missing() or 'not verified on flagos'})"
    yield Problem(f"--speculative-algorithm {args.speculative_algorithm}", reason, _LEAVE)


def _quantization(args: Any) -> Iterator[Problem]:
    model = _config(args)
    given = args.quantization or (None if model is None else model.quantization)
    if given is None:
        return
    option = f"--quantization {given}" if args.quantization else f"model of quantization {given}"
    if given != "fp8":
        yield Problem(option, "flagos has no kernels for it", "write fp8, or take other weights")
    elif model is not None and model.dtype == torch.float32:
        yield Problem(option, "SGLang has it for halves alone", "write --dtype bfloat16")
    elif model is not None and _has_experts(model):
        yield Problem(
            option,
            "flagos has kernels of experts without quantization alone",
            "take weights without quantization, or a model without experts",
        )


def _loading(args: Any) -> Iterator[Problem]:
    if args.load_format in _LOADED:
        yield Problem(
            f"--load-format {args.load_format}", "it has not been tried on flagos", "write auto"
        )


def _graphs(args: Any) -> Iterator[Problem]:
    asked = args.cuda_graph_config
    if device_type() != "cuda":
        # What was not asked for is left out: the platform captures nothing.
        for name in ("cuda_graph_backend_decode", "cuda_graph_backend_prefill"):
            if getattr(args, name) not in (None, DISABLED):
                yield Problem(
                    f"{_flag(name)} {getattr(args, name)}",
                    f"vendor {_core.vendor()} captures no graphs",
                    "write disabled",
                )
        return
    if asked.decode.backend not in (FULL, DISABLED):
        yield Problem(
            f"--cuda-graph-backend-decode {asked.decode.backend}",
            "decoding on flagos is captured whole",
            "write full or disabled",
        )
    if asked.prefill.backend != DISABLED:
        yield Problem(
            f"--cuda-graph-backend-prefill {asked.prefill.backend}",
            "graphs of prompts have not been tried on flagos",
            "write disabled",
        )
    if args.enable_memory_saver and asked.decode.backend != DISABLED:
        yield Problem(
            "--enable-memory-saver",
            "graphs keep the addresses of memory that it gives away",
            "write --cuda-graph-backend-decode disabled, too",
        )


def _model(args: Any) -> Iterator[Problem]:
    model = _config(args)
    if model is None:
        return
    from sglang.srt.configs.hybrid_arch import mambaish_config
    from sglang.srt.configs.model_config import AttentionArch

    names = ", ".join(model.hf_config.architectures or ["no architecture"])
    why = None
    if model.attention_arch == AttentionArch.MLA:
        why = "multi-head latent attention, whose kernels are Triton's and CUDA's"
    elif mambaish_config(model) is not None:
        why = "layers of linear attention or state spaces, whose kernels are Triton's"
    elif model.is_encoder_decoder:
        why = "cross attention, which attention on flagos does not know"
    elif model.is_multimodal:
        why = "images or sounds, which have not been tried on flagos"
    elif model.is_hybrid_swa and not args.disable_hybrid_swa_memory:
        yield Problem(
            "model",
            f"{names} has layers with a sliding window, which have no pool of their own on flagos",
            "write --disable-hybrid-swa-memory: every layer then keeps the whole context",
        )
    elif model.has_attention_sinks or set(names.split(", ")) & {*_OTHER_GATES}:
        why = "attention with sinks, or gates of its own, which flagos does not know here"
    elif _factor(model) != 1.0 and not set(model.hf_config.architectures or ()) <= set(_OWN_FACTOR):
        why = "a factor of its experts, which SGLang's kernels apply and which has not been tried here"
    if why is not None:
        yield Problem("model", f"{names} has {why}", "take another model")


def _encoder(args: Any) -> Iterator[Problem]:
    model = _config(args)
    if model is None or not set(model.hf_config.architectures or ()) & {*_ENCODERS}:
        return
    if args.chunked_prefill_size not in (None, -1):
        yield Problem(
            f"--chunked-prefill-size {args.chunked_prefill_size}",
            "every token of this model sees every other, and a prompt in parts would end the scheduler",
            "write -1",
        )


def _factor(model: Any) -> float:
    found = getattr(model.hf_text_config, "routed_scaling_factor", None)
    return 1.0 if found is None else float(found)


def _has_experts(model: Any) -> bool:
    text = model.hf_text_config
    names = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
    return any((getattr(text, name, None) or 0) > 1 for name in names)


def _config(args: Any) -> Any:
    """SGLang's `ModelConfig`, or None for models without one."""
    if args.model_path.lower() in ("none", "dummy"):
        return None
    made = releases.installed().model_config
    if ":" in made:
        return pkgutil.resolve_name(made)(args)
    return getattr(args, made)()


def _memory(args: Any) -> Iterator[Problem]:
    if args.enable_memory_saver and args.tokenizer_worker_num > 1:
        yield Problem(
            "--enable-memory-saver",
            "it keeps what is released in the one process of the tokenizer",
            "write --tokenizer-worker-num 1",
        )


def _variables(args: Any) -> Iterator[Problem]:
    if os.environ.get("SGLANG_ENABLE_WAR_BARRIER", "1").lower() in ("0", "false"):
        yield Problem(
            "SGLANG_ENABLE_WAR_BARRIER=0",
            "without the fence an overlapped batch overwrites what the one before still reads",
            "unset it, or write --disable-overlap-schedule with it unset",
        )


RULES: tuple[Callable[[Any], Iterator[Problem]], ...] = (
    _device,
    _devices,
    _attention,
    _values,
    _switches,
    _lora,
    _speculation,
    _quantization,
    _loading,
    _graphs,
    _model,
    _encoder,
    _memory,
    _variables,
)
