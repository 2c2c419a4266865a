"""Unsupported vLLM options. Each rule names the option, the reason and the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import torch

from flagos import _core
from flagos_serving.declaration import device_type
from flagos_serving.refusals import Problem, Refusals
from vllm_flagos import releases
from vllm_flagos.vllm import captures_graphs, triton_missing

# Without quantization, and by kernels that flagos has.
QUANTIZATIONS = ("fp8", "fp8_per_tensor", "compressed-tensors", "auto_awq", "auto_gptq")
# Those of them that may have weights of integers.
INTEGERS = ("compressed-tensors", "auto_awq", "auto_gptq")
# Models whose layers with states are operators of the plan, with references.
WITH_STATES = {
    *("Qwen3NextForCausalLM", "MambaForCausalLM", "Mamba2ForCausalLM", "JambaForCausalLM"),
}
# Types of a cache that have kernels. Each release has further ones.
_CACHES = (
    *("auto", "float16", "bfloat16", "fp8", "fp8_e4m3"),
    *("int4_per_token_head", "int8_per_token_head", "fp8_per_token_head"),
)
CONNECTOR = "FlagosConnector"  # `vllm_flagos.transfer`
RANKS = "flagos ranks"  # in the additional configuration: those of this machine's memory
_EXCHANGE = "allgather_reducescatter"  # vLLM's default between replicas that share experts
_BLOCK = 16  # of vLLM's Triton backend: the tokens of a block are a multiple


REFUSALS = Refusals()
collected = REFUSALS.collected


def require(config: Any, *, before_defaults: bool = False) -> None:
    """Raises ValueError that lists everything in a `VllmConfig` that flagos does not serve.

    ``before_defaults``: what vLLM has a default for that it takes on flagos too, as long as only what was asked for
    is there.
    """
    REFUSALS.report(problems(config, before_defaults=before_defaults))


def problems(config: Any, *, before_defaults: bool = False) -> Iterator[Problem]:
    """Everything in a `VllmConfig` that flagos does not serve."""
    for rule in RULES_BEFORE_DEFAULTS if before_defaults else RULES:
        problem = rule(config)
        if problem is not None:
            yield problem


def _devices(config: Any) -> Problem | None:
    parallel = config.parallel_config
    if parallel.distributed_executor_backend in ("ray", "external_launcher") or parallel.nnodes > 1:
        return None  # ranks on other machines
    ranks, present = ranks_here(config), torch.accelerator.device_count()
    chosen = getattr(parallel, "assigned_physical_gpu_ids", None)
    if chosen is not None:
        # On CUDA they are numbers of the machine, of which CUDA_VISIBLE_DEVICES leaves some.
        some = device_type() == "cuda" and bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
        absent = [str(n) for n in chosen if n < 0 or (n >= present and not some)]
        if absent or len(chosen) < ranks:
            return Problem(
                f"--device-ids {','.join(map(str, chosen))}",
                f"{', '.join(absent)} of them are not there, of {present} flagos devices from 0 on"
                if absent
                else f"{ranks} ranks need {ranks} devices",
                "write a device for each rank; `flagos devices` shows them",
            )
    if ranks <= present:
        return None
    options = {
        "--tensor-parallel-size": parallel.tensor_parallel_size,
        "--pipeline-parallel-size": parallel.pipeline_parallel_size,
        "--data-parallel-size": ranks // parallel.local_world_size,
    }
    return Problem(
        " ".join(name for name, size in options.items() if size > 1),
        f"{ranks} ranks need {ranks} flagos devices, and there are {present}",
        f"write at most {present} in all, or on the host vendor set FLAGOS_HOST_DEVICES={ranks}",
    )


def ranks_here(config: Any) -> int:
    """The ranks of this machine, of all replicas that this process starts."""
    parallel = config.parallel_config
    one = parallel.data_parallel_rank_local is not None or parallel.data_parallel_backend == "ray"
    return int(parallel.local_world_size * (1 if one else parallel.data_parallel_size_local))


def ranks_of_this_memory(config: Any) -> int:
    """The ranks that have this machine's memory between them, of all replicas, whoever starts these."""
    counted = getattr(config, "additional_config", None)
    if (
        isinstance(counted, dict) and RANKS in counted
    ):  # an engine takes its replica for the only one
        return int(counted[RANKS])
    parallel = config.parallel_config
    if parallel.data_parallel_rank_local is None:
        return ranks_here(config)
    # Programs of one replica each: as many as the devices of this machine are enough for.
    most = torch.accelerator.device_count() // parallel.local_world_size
    return int(parallel.local_world_size * max(1, min(parallel.data_parallel_size, most)))


def memory_of_the_machine(config: Any) -> Problem | None:
    """Why this machine has not the memory that all ranks ask for together, on the host vendor."""
    total = torch.flagos.get_device_properties(0).total_memory  # type: ignore[attr-defined]
    share = config.cache_config.gpu_memory_utilization
    requested, available = total * share, psutil.virtual_memory().available
    if requested <= available:
        return None
    return Problem(
        f"--gpu-memory-utilization {share}",
        f"it asks for {requested / 2**30:.1f} GiB of this machine's memory for all its ranks "
        f"({ranks_of_this_memory(config)}), and {available / 2**30:.1f} GiB of it are available",
        "write less, or give the size of the cache of each rank by --kv-cache-memory-bytes",
    )


def _memory_of_replicas(config: Any) -> Problem | None:
    """Replicas without experts in common start by themselves: each finds the memory that others have taken."""
    parallel, cache = config.parallel_config, config.cache_config
    if (
        device_type() != "cpu"
        or ranks_here(config) == parallel.local_world_size
        or getattr(config.model_config, "is_moe", False)
        or getattr(cache, "kv_cache_memory_bytes", None) is not None
    ):
        return None
    return memory_of_the_machine(config)


def _ray(config: Any) -> Problem | None:
    if config.parallel_config.distributed_executor_backend != "ray":
        return None
    return Problem(
        "--distributed-executor-backend ray",
        "Ray does not know flagos devices",
        "leave it out (processes of this machine are `mp`)",
    )


def _microbatches(config: Any) -> Problem | None:
    parallel = config.parallel_config
    if not (getattr(parallel, "enable_dbo", False) or getattr(parallel, "ubatch_size", 0)):
        return None
    return Problem("--enable-dbo", "overlapped microbatches use CUDA's kernels", "leave it out")


def _replicas_of_experts(config: Any) -> Problem | None:
    parallel = config.parallel_config
    if parallel.data_parallel_size == 1 or not (
        parallel.enable_expert_parallel or getattr(config.model_config, "is_moe", False)
    ):
        return None
    if config.model_config is not None and config.model_config.quantization is not None:
        return Problem(
            f"--data-parallel-size with --quantization {config.model_config.quantization}",
            "experts that replicas share have been tried without quantization alone",
            "leave one out, or write --tensor-parallel-size",
        )
    chosen = getattr(parallel, "all2all_backend", _EXCHANGE)
    if chosen != _EXCHANGE:
        return Problem(
            f"--all2all-backend {chosen}",
            "its kernels are for CUDA, and replicas exchange tokens over the process group of flagos",
            f"write {_EXCHANGE}, or leave it out",
        )
    return None


def _adapters_of_experts(config: Any) -> Problem | None:
    lora, model = getattr(config, "lora_config", None), config.model_config
    if lora is None or not getattr(model, "is_moe", False):
        return None
    remedy = "leave one out"
    if model.quantization is not None:
        return Problem(
            f"--enable-lora with --quantization {model.quantization}",
            "adapters of experts are for weights without quantization",
            remedy,
        )
    if getattr(lora, "fully_sharded_loras", False):
        return Problem(
            "--enable-lora with --fully-sharded-loras",
            "each rank of flagos has whole adapters of experts",
            remedy,
        )
    if config.parallel_config.data_parallel_size > 1:
        return Problem(
            "--enable-lora with --data-parallel-size",
            "replicas exchange the tokens of experts, but not their adapters",
            remedy,
        )
    if config.parallel_config.enable_expert_parallel:
        return Problem(
            "--enable-lora with --enable-expert-parallel",
            "adapters of experts have not been tried with ranks that have experts of their own",
            remedy,
        )
    return None


def _quantization(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or model.quantization is None:
        return None
    if model.quantization in QUANTIZATIONS:
        return None
    return Problem(
        f"--quantization {model.quantization}",
        "flagos has no kernels for it",
        f"write one of {', '.join(QUANTIZATIONS)}, or take weights without quantization",
    )


def _described(model: Any) -> dict[str, Any]:
    """What the model's configuration says of its quantization."""
    found = getattr(getattr(model, "hf_config", None), "quantization_config", None)
    return found if isinstance(found, dict) else {}


def _quantized_experts(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or model.quantization is None or not getattr(model, "is_moe", False):
        return None
    described = _described(model)
    if model.quantization == "auto_gptq" and described.get("desc_act"):
        reason = "experts take groups of rows as they follow each other, and the model has desc_act"
    elif model.quantization in ("auto_awq", "auto_gptq"):
        return None
    elif model.quantization == "compressed-tensors":
        forms = [_form(group) for group in described.get("config_groups", {}).values()]
        if all(form in _FORMS_OF_EXPERTS for form in forms):
            return None
        reason = "experts have weights of integers, symmetric and in groups, or W8A8 with a scale for each token"
    else:
        reason = "flagos has kernels of experts without quantization, and with weights of integers"
    return Problem(
        f"--quantization {model.quantization}",
        reason,
        "take weights without quantization, or a model without experts",
    )


# Of compressed-tensors: what `_form` makes of a group → whether experts have it.
_FORMS_OF_EXPERTS = ("integers, groups", "8 bits of int, token by token")
_FORMS = (
    *_FORMS_OF_EXPERTS,
    *("8 bits of float", "8 bits of int", "integers"),
)


def _form(group: dict[str, Any]) -> str:
    """A name of `_FORMS` for weights and activations of one group, or what they are."""
    weights, given = group.get("weights") or {}, group.get("input_activations") or {}
    bits, kind = weights.get("num_bits"), weights.get("type")
    strategy, symmetric = weights.get("strategy"), weights.get("symmetric", True)
    same = (given.get("num_bits"), given.get("type")) == (bits, kind)
    if (bits, kind) == (8, "float") and same:
        return "8 bits of float"
    if (bits, kind) == (8, "int") and same and symmetric and strategy in ("channel", "tensor"):
        by_token = given.get("strategy") == "token" and given.get("symmetric", True)
        if by_token and given.get("dynamic") is True and strategy == "channel":
            return "8 bits of int, token by token"
        if given.get("strategy") in ("token", "tensor"):
            return "8 bits of int"
    if bits in (4, 8) and kind == "int" and not given and strategy in ("group", "channel"):
        plain = (
            symmetric
            and strategy == "group"
            and weights.get("actorder") in (None, "static", "weight")
        )
        return "integers, groups" if plain else "integers"
    return _described_bits(group)


def _described_bits(group: dict[str, Any]) -> str:
    parts = [(part, group.get(part) or {}) for part in ("weights", "input_activations")]
    return " and ".join(
        f"{part} of {one.get('num_bits', 'no')} bits of {one.get('type', 'any type')}"
        for part, one in parts
    )


def _scheme(config: Any) -> Problem | None:
    """Accepts compressed-tensors for the schemes that have a kernel."""
    model = config.model_config
    if model is None or model.quantization != "compressed-tensors":
        return None
    for name, group in _described(model).get("config_groups", {}).items():
        form = _form(group)
        if form in _FORMS:
            continue
        return Problem(
            "--quantization compressed-tensors",
            f"{name} of the model has {_described_bits(group)}, for which flagos has no kernels",
            "take a model with weights and activations of 8 bits (FP8, W8A8), with weights of 4 or 8 bits of integers "
            "(W4A16, W8A16), or without quantization",
        )
    return None


def _weights_of_bitsandbytes(config: Any) -> Problem | None:
    load = getattr(config, "load_config", None)
    if str(getattr(load, "load_format", "")) != "bitsandbytes":
        return None
    return Problem("--load-format bitsandbytes", "flagos has no kernels for it", "leave it out")


def _parts_of_prompts(config: Any) -> Problem | None:
    if getattr(config.parallel_config, "prefill_context_parallel_size", 1) == 1:
        return None
    return Problem(
        "--prefill-context-parallel-size",
        "attention on flagos takes prompts whole",
        "leave it out, or write --tensor-parallel-size",
    )


def _block_size(config: Any) -> Problem | None:
    size = getattr(config.cache_config, "block_size", None)
    if size is None or size % _BLOCK == 0:
        return None
    return Problem(
        f"--block-size {size}",
        f"attention takes blocks of multiples of {_BLOCK} tokens",
        f"write {-(-size // _BLOCK) * _BLOCK}, or leave it out",
    )


def _cache_dtype(config: Any) -> Problem | None:
    name = str(config.cache_config.cache_dtype)
    model = config.model_config
    if name in ("fp8_inc", "fp8_ds_mla"):
        return Problem(
            f"--kv-cache-dtype {name}",
            "it is the form of other chips, or of sparse latent attention",
            "write auto or fp8",
        )
    if name.startswith("fp8") and getattr(model, "attn_type", None) == "encoder_only":
        return Problem(
            f"--kv-cache-dtype {name}", "an encoder alone has no cache in 8 bits", "leave it out"
        )
    if name == "fp8_e5m2":
        return Problem(
            f"--kv-cache-dtype {name}",
            "vLLM's attention reads caches of 8 bits as fp8_e4m3",
            "write fp8",
        )
    if name not in _CACHES:
        return Problem(
            f"--kv-cache-dtype {name}", "flagos has no kernels for it", "write auto or fp8"
        )
    if "per_token_head" in name and triton_missing() is not None:
        return Problem(
            f"--kv-cache-dtype {name}",
            f"its kernels are Triton's: {triton_missing()}",
            "write auto or fp8",
        )
    return None


def _speculation(config: Any) -> Problem | None:
    speculative = config.speculative_config
    if speculative is None or triton_missing() is None or speculative.method == "ngram":
        return None
    return Problem(
        f"--speculative-config method={speculative.method}",
        f"its kernels are Triton's: {triton_missing()}",
        'write {"method": "ngram", ...}',
    )


def _rejection(config: Any) -> Problem | None:
    method = getattr(config.speculative_config, "rejection_sample_method", None)
    if method != "fly" or triton_missing() is None:
        return None
    return Problem(
        "--speculative-config rejection_sample_method=fly",
        f"its kernels are Triton's: {triton_missing()}",
        "leave it out",
    )


def _hybrid(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or triton_missing() is None:
        return None
    if not (model.is_hybrid or getattr(model, "is_attention_free", False)):
        return None
    if set(model.architectures) & WITH_STATES:
        return _with_states(config)
    return Problem(
        "model",
        f"{', '.join(model.architectures)} has layers with kernels of Triton: {triton_missing()}",
        "take a model with attention alone",
    )


def _with_states(config: Any) -> Problem | None:
    """What the references of layers with states do not do."""
    if config.speculative_config is not None:
        return Problem(
            f"--speculative-config method={config.speculative_config.method}",
            f"drafts of a model with states have kernels of Triton: {triton_missing()}",
            "leave it out",
        )
    mode = getattr(config.cache_config, "mamba_cache_mode", "none")
    if mode != "none":
        return Problem(
            f"--mamba-cache-mode {mode}",
            f"states in a prefix cache have kernels of Triton: {triton_missing()}",
            "write --no-enable-prefix-caching",
        )
    return None


def _chunks(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or "Rnj1ForCausalLM" not in model.architectures:
        return None
    layers = getattr(getattr(model, "hf_text_config", None), "layer_types", None) or ()
    if "chunked_attention" not in layers:
        return None
    return Problem(
        "model",
        "vLLM takes its own backend alone for attention to the chunk before",
        "take a model without layers of chunked_attention",
    )


def _latent(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or not model.use_mla:
        return None
    if getattr(config.parallel_config, "decode_context_parallel_size", 1) > 1:
        return Problem(
            "--decode-context-parallel-size",
            "latent attention over contexts of several ranks has not been tried",
            "leave it out",
        )
    chosen = getattr(config.attention_config, "mla_prefill_backend", None)
    if chosen is not None:
        return Problem(
            f"--attention-config mla_prefill_backend={chosen.name}",
            "on flagos prompts are the operator vllm::expanded_attention, and the plan chooses its kernel",
            "leave it out",
        )
    return None


def _backend_of_experts(config: Any) -> Problem | None:
    chosen = getattr(getattr(config, "kernel_config", None), "moe_backend", "auto")
    if chosen == "auto" or (chosen == "triton" and triton_missing() is None):
        return None
    if not getattr(config.model_config, "is_moe", False):
        return None
    return Problem(
        f"--moe-backend {chosen}",
        "on flagos experts are the operator vllm::fused_experts, and the plan chooses its kernel",
        "leave it out; `flagos explain vllm::fused_experts` lists the kernels, and flagos.toml routes it",
    )


def _backend_of_products(config: Any) -> Problem | None:
    chosen = getattr(getattr(config, "kernel_config", None), "linear_backend", "auto")
    if chosen == "auto" or getattr(config.model_config, "quantization", None) is None:
        return None
    return Problem(
        f"--linear-backend {chosen}",
        "flagos' products of 8 bits have no such name",
        "leave it out",
    )


def _batch_invariance(config: Any) -> Problem | None:
    if os.environ.get("VLLM_BATCH_INVARIANT", "0") in ("", "0"):
        return None
    return Problem(
        "VLLM_BATCH_INVARIANT",
        "vLLM puts kernels that do not depend on the batch in the place of CUDA's operators alone",
        "unset it",
    )


def _graphs(config: Any) -> Problem | None:
    requested = config.compilation_config.cudagraph_mode
    if requested is None or requested.name == "NONE" or captures_graphs():
        return None
    return Problem(
        f"--compilation-config cudagraph_mode={requested.name}",
        f"vendor {_core.vendor()} captures no graphs",
        "leave it out",
    )


def broken_graphs() -> bool:
    """Whether graphs end at attention while they are captured, instead of in the code that torch.compile makes."""
    return os.environ.get("VLLM_USE_BREAKABLE_CUDAGRAPH") == "1"


def _broken_graphs(config: Any) -> Problem | None:
    model, compiled = config.model_config, getattr(config, "compilation_config", None)
    mode = getattr(compiled, "cudagraph_mode", None)
    if model is None or mode is None or mode.name == "NONE" or not broken_graphs():
        return None
    with_states = model.is_hybrid or getattr(model, "is_attention_free", False)
    if not with_states or releases.installed().states_end_graphs:
        return None
    return Problem(
        "VLLM_USE_BREAKABLE_CUDAGRAPH",
        "such graphs end at attention alone, and the model has layers with states",
        "unset it",
    )


def fusions(config: Any) -> list[str]:
    """The names of vLLM's passes that fuse operators, which have kernels of its own platforms."""
    passes = config.compilation_config.pass_config
    others = ("enable_qk_norm_rope_fusion", "enable_sp")
    return [name for name in vars(passes) if name.startswith("fuse_") or name in others]


def _fusions(config: Any) -> Problem | None:
    passes = config.compilation_config.pass_config
    requested = [name for name in fusions(config) if getattr(passes, name) is True]
    if not requested:
        return None
    return Problem(
        f"--compilation-config pass_config.{', '.join(requested)}",
        "vLLM's fusions of operators have kernels of its own platforms",
        "leave it out",
    )


def _sleep(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or not model.enable_sleep_mode:
        return None
    chosen = getattr(model, "sleep_mode_backend", "cumem")
    if chosen != "cumem":  # vLLM's default, under which flagos has its own
        return Problem(
            f"--sleep-mode-backend {chosen}",
            "sleep mode on flagos is over the core's allocator",
            "leave it out",
        )
    if getattr(model, "enable_nccl_comm_suspend", False):  # vLLM 0.33
        return Problem(
            "--enable-nccl-comm-suspend",
            "process groups of flagos keep their memory in a sleep",
            "leave it out",
        )
    mode = getattr(getattr(config, "compilation_config", None), "cudagraph_mode", None)
    graphs = "NONE" if mode is None else mode.name
    if captures_graphs() and graphs != "NONE":
        return Problem(
            f"--enable-sleep-mode with cudagraph_mode={graphs}",
            "weights and caches have other addresses after a sleep, and graphs keep the former",
            "write --compilation-config cudagraph_mode=NONE, or --enforce-eager",
        )
    if config.kv_transfer_config is not None:
        return Problem(
            "--enable-sleep-mode with --kv-transfer-config",
            "a connector keeps the addresses of the caches",
            "leave one out",
        )
    return None


def _updates(config: Any) -> Problem | None:
    given = getattr(config, "weight_transfer_config", None)
    if given is None:
        return None
    return Problem(
        f"--weight-transfer-config backend={given.backend}",
        "vLLM's engines for it have collectives and handles of CUDA",
        'leave it out, and call collective_rpc("flagos_update_weights", args=(weights,))',
    )


def _transfer(config: Any) -> Problem | None:
    transfer, parallel, model = (
        config.kv_transfer_config,
        config.parallel_config,
        config.model_config,
    )
    if transfer is None:
        return None
    option = "--kv-transfer-config"
    if transfer.kv_connector != CONNECTOR:
        return Problem(
            option,
            f"{transfer.kv_connector} has not been tried on flagos memory",
            f"write kv_connector={CONNECTOR}, or leave it out",
        )
    if transfer.kv_role == "kv_both":
        return Problem(
            f"{option} kv_role=kv_both",
            f"an engine of {CONNECTOR} computes prompts, or takes them",
            "write kv_producer or kv_consumer",
        )
    if parallel.pipeline_parallel_size > 1 or parallel.data_parallel_size > 1:
        return Problem(
            f"{option} with --pipeline-parallel-size or --data-parallel-size",
            f"{CONNECTOR} pairs the ranks of one replica without stages",
            "leave one out",
        )
    if model is not None and model.is_hybrid:
        return Problem(
            f"{option}",
            f"{CONNECTOR} takes caches of attention, not states",
            "leave it out, or take a model with attention alone",
        )
    return None


def _offloading(config: Any) -> Problem | None:
    blocks = getattr(config.cache_config, "kv_offloading_size", None)
    if not blocks:
        return None
    return Problem(
        "--kv-offloading-size",
        "the cache's offloading has not been tried on flagos memory",
        "leave it out",
    )


def _visual_attention(config: Any) -> Problem | None:
    model = config.model_config
    multimodal = None if model is None else getattr(model, "multimodal_config", None)
    chosen = None if multimodal is None else getattr(multimodal, "mm_encoder_attn_backend", None)
    if chosen is None or chosen.name == "TORCH_SDPA":
        return None
    return Problem(
        f"--mm-encoder-attn-backend {chosen.name}",
        "on flagos attention of encoders is torch's, or the operator vllm::expanded_attention, whose kernel the plan "
        "chooses",
        "leave it out, or write TORCH_SDPA",
    )


def _attention(config: Any) -> Problem | None:
    chosen, model = getattr(config.attention_config, "backend", None), config.model_config
    if chosen is None:
        return None
    if chosen.name == "TRITON_MLA" and model is not None and not model.use_mla:
        return Problem(
            "--attention-backend TRITON_MLA",
            f"{', '.join(model.architectures)} has no latent attention",
            "leave it out",
        )
    return _backend(chosen.name)


def _backend(name: str | None) -> Problem | None:
    if name in (None, "CUSTOM", "TRITON_ATTN", "TRITON_MLA"):
        return None
    return Problem(
        f"--attention-backend {name}",
        "on flagos attention is the operator vllm::paged_attention, and the plan chooses its kernel",
        "leave it out; `flagos explain vllm::paged_attention` lists the kernels, and flagos.toml routes it",
    )


def attention(selected: Any, given: Any) -> Problem | None:
    """Why an attention backend that was asked for cannot serve, by vLLM's `AttentionSelectorConfig`."""
    wrong = _backend(None if selected is None else selected.name)
    if wrong is not None:
        return wrong
    if given.use_sparse:
        return Problem("model", "sparse attention has kernels for CUDA alone", "take another model")
    return None


RULES: tuple[Callable[[Any], Problem | None], ...] = (
    _devices,
    _memory_of_replicas,
    _attention,
    _ray,
    _microbatches,
    _replicas_of_experts,
    _adapters_of_experts,
    _quantization,
    _quantized_experts,
    _scheme,
    _weights_of_bitsandbytes,
    _parts_of_prompts,
    _block_size,
    _cache_dtype,
    _speculation,
    _rejection,
    _hybrid,
    _chunks,
    _latent,
    _broken_graphs,
    _sleep,
    _updates,
    _transfer,
    _offloading,
    _visual_attention,
    _backend_of_experts,
    _backend_of_products,
    _batch_invariance,
)
RULES_BEFORE_DEFAULTS: tuple[Callable[[Any], Problem | None], ...] = (_graphs, _fusions)

__all__ = [
    "CONNECTOR",
    "INTEGERS",
    "Problem",
    "QUANTIZATIONS",
    "RANKS",
    "RULES",
    "RULES_BEFORE_DEFAULTS",
    "attention",
    "broken_graphs",
    "collected",
    "fusions",
    "memory_of_the_machine",
    "problems",
    "ranks_here",
    "ranks_of_this_memory",
    "require",
]
