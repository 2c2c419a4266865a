"""What flagos completes in vLLM's modules, in the processes that compute. Each completion names the reason."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from vllm_flagos import launches, operators, torch_view
from vllm_flagos.operators.declaration import triton_missing

# Module → function or kernel of vLLM → the operator in its place.
_FUNCTIONS: dict[str, dict[str, Any]] = {
    "v1.attention.backends.triton_attn": {
        "unified_attention": operators.paged_attention,
        "triton_reshape_and_cache_flash": operators.reshape_and_cache,
        "context_attention_fwd": operators.prefill_attention,
    },
}
_KERNELS = {
    "v1.worker.block_table": {"_compute_slot_mapping_kernel": operators.slot_mapping},
    "v1.sample.rejection_sampler": {
        "rejection_greedy_sample_kernel": operators.reject_greedily,
        "rejection_random_sample_kernel": operators.reject_randomly,
        "expand_kernel": operators.expand_to_tokens,
        "sample_recovered_tokens_kernel": operators.recover_tokens,
    },
}
# Where Triton reaches the device: vLLM's wrapper of LoRA imports its kernels nowhere else.
_OF_TRITON = {
    "lora.punica_wrapper.punica_gpu": {
        "lora_shrink": torch.ops.vllm_flagos.lora_shrink,
        "lora_expand": torch.ops.vllm_flagos.lora_expand,
    },
}
_VIEWS_OF_HOST_MEMORY = (
    "utils.torch_utils",
    "v1.worker.gpu.buffer_utils",
    "model_executor.model_loader.utils",
    "model_executor.offloader.uva",
)


def install() -> None:
    """Completes vLLM's modules, which it imports. Idempotent.

    Raises RuntimeError for a name that this release of vLLM does not have.
    """
    for module in torch_view.MODULES:
        torch_view.install(_module(module))
    torch_view.restore()
    functions_here = _FUNCTIONS if triton_missing() is not None else _FUNCTIONS | _OF_TRITON
    for module, functions in functions_here.items():
        for name, operator in functions.items():
            _known(_module(module), name)
            setattr(_module(module), name, operator)
    for module, kernels in _KERNELS.items():
        for name, operator in kernels.items():
            _known(_module(module), name)
            launches.replace(_module(module), name, operator)
    for module in _VIEWS_OF_HOST_MEMORY:
        name = "get_accelerator_view_from_cpu_tensor"
        _known(_module(module), name)
        # vLLM's own raises for platforms that it does not know.
        setattr(_module(module), name, torch.flagos.host_memory_view)  # type: ignore[attr-defined]

    _known(_module("v1.worker.gpu_worker"), "kernel_warmup")
    _module("v1.worker.gpu_worker").kernel_warmup = warm_up  # type: ignore[attr-defined]


def warm_up(worker: Any) -> None:
    """Compiles the Triton kernels of the first step before the first request.

    vLLM's own function also warms kernels of single CUDA models, and imports them and torchvision for it.
    """
    if triton_missing() is not None:
        return
    if not worker.use_v2_model_runner and not worker.model_runner.is_pooling_model:
        _module("model_executor.warmup.v1_block_table_warmup").warm_v1_block_table_kernels(
            worker.device, worker.scheduler_config.max_num_batched_tokens
        )
    _module("model_executor.warmup.qwen_triton_warmup").qwen_triton_warmup(
        worker.model_runner, worker.vllm_config.model_config
    )


def _module(name: str) -> ModuleType:
    return import_module(f"vllm.{name}")


def _known(module: ModuleType, name: str) -> Any:
    if not hasattr(module, name):
        raise RuntimeError(
            f"{module.__name__} has no {name}: this release of vLLM is not the one that vllm-flagos knows"
        )
    return getattr(module, name)
