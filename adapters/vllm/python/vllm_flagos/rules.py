"""What of a configuration of vLLM flagos does not serve. Each rule names the option, the reason and what to write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from vllm_flagos.operators.declaration import triton_missing

# Without quantization, and by kernels that flagos has.
QUANTIZATIONS = ("fp8", "fp8_per_tensor", "compressed-tensors")
_BLOCK = 16  # of vLLM's Triton backend: the tokens of a block are a multiple


@dataclass(frozen=True)
class Problem:
    """Something that will not work."""

    option: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.option}: {self.reason}; {self.remedy}"


_collected: list[Problem] | None = None


@contextmanager
def collected() -> Iterator[list[Problem]]:
    """Inside, `require` adds to this list instead of raising."""
    global _collected
    _collected = []
    try:
        yield _collected
    finally:
        _collected = None


def require(config: Any) -> None:
    """Raises ValueError that lists everything in a `VllmConfig` that flagos does not serve."""
    found = list(problems(config))
    if _collected is not None:
        _collected.extend(found)
    elif found:
        listed = "\n".join(f"  {problem}" for problem in found)
        raise ValueError(f"this configuration does not work on flagos:\n{listed}")


def problems(config: Any) -> Iterator[Problem]:
    """Everything in a `VllmConfig` that flagos does not serve."""
    for rule in RULES:
        problem = rule(config)
        if problem is not None:
            yield problem


def _devices(config: Any) -> Problem | None:
    parallel = config.parallel_config
    if parallel.distributed_executor_backend in ("ray", "external_launcher") or parallel.nnodes > 1:
        return None  # ranks on other machines
    ranks, present = parallel.local_world_size, torch.accelerator.device_count()
    if ranks <= present:
        return None
    return Problem(
        "--tensor-parallel-size"
        if parallel.tensor_parallel_size > 1
        else "--pipeline-parallel-size",
        f"{ranks} ranks need {ranks} flagos devices, and there are {present}",
        f"write at most {present}, or on the host vendor set FLAGOS_HOST_DEVICES={ranks}",
    )


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
    return Problem(
        "--data-parallel-size",
        "experts that replicas share exchange tokens by kernels for CUDA",
        "leave it out, or write --tensor-parallel-size",
    )


def _adapters_of_experts(config: Any) -> Problem | None:
    if getattr(config, "lora_config", None) is None:
        return None
    if not getattr(config.model_config, "is_moe", False):
        return None
    return Problem(
        "--enable-lora",
        "vLLM's adapters of experts are for its own experts' kernels, which vllm::fused_experts replaces",
        "leave it out, or take a model without experts",
    )


def _quantization(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or model.quantization is None or model.quantization in QUANTIZATIONS:
        return None
    return Problem(
        f"--quantization {model.quantization}",
        "flagos has no kernels for it",
        f"write one of {', '.join(QUANTIZATIONS)}, or take weights without quantization",
    )


def _quantized_experts(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or model.quantization is None or not getattr(model, "is_moe", False):
        return None
    return Problem(
        f"--quantization {model.quantization}",
        "flagos has kernels of experts without quantization alone",
        "take weights without quantization, or a model without experts",
    )


def _scheme(config: Any) -> Problem | None:
    """Of compressed-tensors, weights and activations of 8 bits in floating point have a kernel."""
    model = config.model_config
    if model is None or model.quantization != "compressed-tensors":
        return None
    described = getattr(getattr(model, "hf_config", None), "quantization_config", None) or {}
    groups = described.get("config_groups", {}) if isinstance(described, dict) else {}
    for name, group in groups.items():
        for part in ("weights", "input_activations"):
            given = group.get(part) or {}
            told = f"{given.get('num_bits', 'no')} bits of {given.get('type', 'any type')}"
            if (given.get("num_bits"), given.get("type")) != (8, "float"):
                return Problem(
                    "--quantization compressed-tensors",
                    f"{name} of the model has {part} of {told}, for which flagos has no kernels",
                    "take a model with weights and activations of 8 bits of float (FP8), or without quantization",
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
    if name == "fp8_e5m2":
        return Problem(
            f"--kv-cache-dtype {name}",
            "vLLM's attention reads caches of 8 bits as fp8_e4m3",
            "write fp8",
        )
    if name.startswith("turboquant") or name == "nvfp4":
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
    return Problem(
        "model",
        f"{', '.join(model.architectures)} has layers with kernels of Triton: {triton_missing()}",
        "take a model with attention alone",
    )


def _latent(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or not model.use_mla or triton_missing() is None:
        return None
    return Problem(
        "model",
        f"{', '.join(model.architectures)} has multi-head latent attention, whose kernels are Triton's: "
        f"{triton_missing()}",
        "take another model, or a device that Triton reaches",
    )


def _sleep(config: Any) -> Problem | None:
    model = config.model_config
    if model is None or not (
        model.enable_sleep_mode or getattr(model, "enable_cumem_allocator", False)
    ):
        return None
    return Problem("--enable-sleep-mode", "it needs vLLM's own allocator for CUDA", "leave it out")


def _transfer(config: Any) -> Problem | None:
    transfer = config.kv_transfer_config
    if transfer is None:
        return None
    return Problem(
        "--kv-transfer-config",
        f"{transfer.kv_connector} has not been tried on flagos memory",
        "leave it out",
    )


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
        "attention of encoders of images is torch's on flagos",
        "write TORCH_SDPA",
    )


def _attention(config: Any) -> Problem | None:
    chosen = getattr(config.attention_config, "backend", None)
    return None if chosen is None else _backend(chosen.name)


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
    if given.use_mla and triton_missing() is not None:
        return Problem(
            "model",
            f"multi-head latent attention has kernels of Triton alone: {triton_missing()}",
            "take another model",
        )
    return None


RULES: tuple[Callable[[Any], Problem | None], ...] = (
    _devices,
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
    _latent,
    _sleep,
    _transfer,
    _offloading,
    _visual_attention,
)

__all__ = ["Problem", "QUANTIZATIONS", "RULES", "attention", "collected", "problems", "require"]
