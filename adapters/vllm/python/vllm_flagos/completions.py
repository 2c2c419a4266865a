"""Completions of vLLM's modules in the processes that compute, each with its reason."""

from __future__ import annotations

from functools import partial, reduce, wraps
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from vllm_flagos import launches, operators, platform_view, releases, torch_view, warming
from vllm_flagos.operators.states import prepares
from vllm_flagos.vllm import triton_missing
from vllm_flagos.zeroes import BlockZeroer

# Module → function of vLLM → the operator in its place. Of kernels, `vllm_flagos.releases` has the table.
_FUNCTIONS: dict[str, dict[str, Any]] = {
    "v1.attention.backends.triton_attn": {
        "unified_attention": operators.paged_attention,
        "triton_reshape_and_cache_flash": operators.reshape_and_cache,
        "context_attention_fwd": operators.prefill_attention,
    },
}
# Where Triton reaches the device: vLLM's wrapper of LoRA imports its kernels nowhere else.
_OF_TRITON = {
    "lora.punica_wrapper.punica_gpu": {
        "lora_shrink": torch.ops.vllm_flagos.lora_shrink,
        "lora_expand": torch.ops.vllm_flagos.lora_expand,
    },
}
# Where a model has layers with states: other models do not import these modules.
_WITH_STATES: dict[str, dict[str, Any]] = {
    "model_executor.layers.mamba.gdn.qwen_gdn_linear_attn": {
        "causal_conv1d_fn": operators.causal_conv1d,
        "causal_conv1d_update": operators.causal_conv1d_update,
        "fused_post_conv_prep": operators.prepare_delta_rule,
        "fla_chunk_gated_delta_rule": operators.chunk_gated_delta_rule,
        "fused_sigmoid_gating_delta_rule_update": operators.gated_delta_rule_update,
        "fused_recurrent_gated_delta_rule_packed_decode": operators.gated_delta_rule_packed_update,
    },
    "model_executor.layers.mamba.mamba_mixer2": {
        "causal_conv1d_fn": operators.causal_conv1d,
        "causal_conv1d_update": operators.causal_conv1d_update,
        "mamba_chunk_scan_combined_varlen": operators.state_space_chunks,
        "selective_state_update": operators.state_space_update,
    },
    "model_executor.layers.mamba.mamba_mixer": {
        "causal_conv1d_fn": operators.causal_conv1d,
        "causal_conv1d_update": operators.causal_conv1d_update,
        "selective_scan_fn": operators.selective_scan,
        "selective_state_update": operators.state_space_update,
    },
}
_WITH_STATES_WITHOUT_TRITON: dict[str, dict[str, Any]] = {
    "v1.worker.utils": {"KVBlockZeroer": BlockZeroer},
    "v1.worker.gpu_model_runner": {"KVBlockZeroer": BlockZeroer},
}
# Where a model has latent attention.
_LATENT: dict[str, dict[str, Any]] = {
    "v1.attention.backends.mla.triton_mla": {"decode_attention_fwd": operators.latent_attention},
    "model_executor.layers.attention.mla_attention": {
        "merge_attn_states": operators.merge_attention,
    },
}
_EMPTY_CONTEXTS = {
    "model_executor.layers.attention.mla_attention": {
        "mask_empty_context": operators.mask_empty_context,
    },
}
_VIEWS_OF_HOST_MEMORY = (
    "utils.torch_utils",
    "v1.worker.gpu.buffer_utils",
    "model_executor.model_loader.utils",
    "model_executor.offloader.uva",
)


def install(with_states: bool = False, latent: bool = False) -> None:
    """Completes vLLM's modules, which it imports. Idempotent.

    ``with_states``: those of layers with a state for each sequence, too; ``latent``: those of latent attention.

    Raises RuntimeError for a name that this release of vLLM does not have.
    """
    for module in torch_view.MODULES:
        torch_view.install(_module(module))
    torch_view.restore()
    tables = [_FUNCTIONS] if triton_missing() is not None else [_FUNCTIONS, _OF_TRITON]
    if with_states:
        tables.append(_WITH_STATES)
        if triton_missing() is not None:
            tables.append(_WITH_STATES_WITHOUT_TRITON)
        if releases.installed().short_prompts_keep_states:
            _begin_short_prompts()
    if latent:
        tables.append(_LATENT)
        if releases.installed().masks_empty_contexts:
            tables.append(_EMPTY_CONTEXTS)
        _choose_expanded()
    for module, functions in (entry for table in tables for entry in table.items()):
        for name, operator in functions.items():
            _known(_module(module), name)
            setattr(_module(module), name, operator)
    for module, kernels in releases.installed().kernels.items():
        for path, operator in kernels.items():
            *holders, name = path.split(".")
            holder = reduce(_known, holders, _module(module))
            _known(holder, name)
            launches.replace(holder, name, getattr(operators, operator))
    for module in _VIEWS_OF_HOST_MEMORY:
        name = "get_accelerator_view_from_cpu_tensor"
        _known(_module(module), name)
        # vLLM's own raises for platforms that it does not know.
        setattr(_module(module), name, torch.flagos.host_memory_view)  # type: ignore[attr-defined]

    # Several layers of one number, as an encoder-decoder has them, are no matter for the model runners for GPUs.
    platform_view.install(_module("v1.worker.utils"))

    _known(_module("v1.worker.gpu_worker"), "kernel_warmup")
    _module("v1.worker.gpu_worker").kernel_warmup = warm_up  # type: ignore[attr-defined]


def _begin_short_prompts() -> None:
    """vLLM 0.26 takes a prompt of one token for a further token of a sequence, whose state another request left."""
    module = _module("v1.attention.backends.gdn_attn")
    own = _known(module, "split_decodes_and_prefills")
    if not isinstance(own, partial):
        split = partial(own, treat_short_extends_as_decodes=False)
        module.split_decodes_and_prefills = split  # type: ignore[attr-defined]


def _choose_expanded() -> None:
    from vllm_flagos import latent

    name = "get_mla_prefill_backend"
    module = _module("model_executor.layers.attention.mla_attention")
    _known(module, name)
    setattr(module, name, latent.prefill_backend)
    if triton_missing() is not None:
        module = _module("v1.attention.backends.mla.triton_mla")
        _known(module, "_compute_num_kv_splits")
        module._compute_num_kv_splits = latent.one_split  # type: ignore[attr-defined]


def warm_up(worker: Any) -> None:
    """Compiles the Triton kernels of steps before the first request.

    vLLM's own function also warms kernels of single CUDA models, and imports them and torchvision for it.
    """
    if triton_missing() is not None:
        return
    first = releases.installed().first_runners_warm_up
    if first and not worker.use_v2_model_runner and not worker.model_runner.is_pooling_model:
        module, name = first
        tokens = worker.scheduler_config.max_num_batched_tokens
        _known(_module(module), name)(worker.device, tokens)
    states = _module("model_executor.warmup.qwen_triton_warmup")
    _warm_up_what_compiles(states)
    states.qwen_triton_warmup(worker.model_runner, worker.vllm_config.model_config)
    if warming.is_warmed_up(worker):
        warming.run(worker)


def _warm_up_what_compiles(module: Any) -> None:
    """vLLM's warm-up launches its kernel itself, where the operator in the kernel's place declines."""
    name = "_warm_fused_post_conv_kernel"
    own = _known(module, name)
    if hasattr(own, "__wrapped__"):
        return

    @wraps(own)
    def warm(device: torch.device, config: Any) -> None:
        if prepares(config.k, config.v):
            own(device, config)

    setattr(module, name, warm)


def _module(name: str) -> ModuleType:
    return import_module(f"vllm.{name}")


def _known(holder: Any, name: str) -> Any:
    if not hasattr(holder, name):
        whose = getattr(holder, "__name__", holder)
        raise RuntimeError(
            f"{whose} has no {name}: this release of vLLM is not the one that vllm-flagos knows"
        )
    return getattr(holder, name)
