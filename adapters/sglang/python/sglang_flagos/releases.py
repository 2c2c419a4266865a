"""The releases of SGLang that this package serves, with what belongs to them. Imports neither torch nor SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version


@dataclass(frozen=True)
class Release:
    """One release of SGLang, and the torch that it is built for."""

    number: str
    torch: str
    # Modules of ``sglang.srt`` whose ``torch.cuda`` means the device of their tensors.
    views: tuple[str, ...]
    # Those of them that say ``torch.device("cuda")``, too.
    views_with_devices: tuple[str, ...]
    # Modules whose global ``_is_cuda`` means the device of their tensors, and is true where that is CUDA's.
    as_cuda: tuple[str, ...]
    # Function of SGLang that other releases do not have, or need no hook for → the hook, of this package.
    hooks: Mapping[str, str]
    # What makes the configuration of the model: a method of `ServerArgs`, or a function of a module.
    model_config: str
    # Function that shows the arguments as they are resolved, which they are by a method; else the constructor does it.
    resolved: str | None = None
    # Whether SGLang asks the platform for `PlatformCapabilities`, in the place of methods that say the same.
    capabilities: bool = False
    # Whether SGLang's allocator of pages is made of kernels of Triton alone.
    pages_by_triton: bool = False
    # Whether SGLang unpickles what is of known modules; else known functions alone.
    unpickles_by_prefix: bool = False
    # Whether SGLang registers its operators for the key CUDA, whatever the platform.
    operators_for_cuda: bool = False


_UPDATER = "sglang.srt.model_executor.model_runner_components.weight_updater.WeightUpdater"
_WORKER = "sglang.srt.managers.tp_worker.BaseTpWorker"

RELEASES = (
    Release(
        number="0.5.17",
        torch="2.11",
        views=(
            "distributed.bootstrap",
            "distributed.parallel_state",
            "lora.lora_manager",
            "managers.schedule_batch",
            "managers.scheduler",
            "managers.scheduler_components.profiler_manager",
            "managers.utils",
            "mem_cache.memory_pool",
            "model_executor.forward_batch_info",
            "model_executor.runner.eager_runner",
            "model_executor.runner_backend.full_cuda_graph_backend",
            "utils.profile_utils",
            "utils.weight_checker",
        ),
        views_with_devices=("lora.backend.chunked_backend", "lora.backend.triton_backend"),
        as_cuda=(
            "sglang.kernels.ops.attention.extend_attention",
            "sglang.srt.managers.overlap_utils",
        ),
        hooks={
            "sglang.kernels.ops.quantization.fp8_kernel.w8a8_block_fp8_matmul_triton": "quantized:block_product",
            "sglang.srt.distributed.parallel_state.GroupCoordinator.__init__": "hooks:group",
            f"{_WORKER}.update_weights_from_disk": "hooks:answered",
            f"{_WORKER}.update_weights_from_distributed": "hooks:answered",
            f"{_WORKER}.update_weights_from_tensor": "hooks:answered",
            "sglang.srt.managers.utils._async_d2h": "hooks:async_d2h",
            "sglang.srt.utils.common.support_triton": "hooks:support_triton",
        },
        model_config="get_model_config",
        pages_by_triton=True,
        unpickles_by_prefix=True,
        operators_for_cuda=True,
    ),
    Release(
        number="0.5.23",
        torch="2.14",
        views=(
            "distributed.bootstrap",
            "distributed.parallel_state",
            "layers.logprob_processor",
            "lora.lora_manager",
            "lora.workspace",
            "managers.schedule_batch",
            "managers.scheduler",
            "managers.scheduler_components.profiler_manager",
            "managers.utils",
            "mem_cache.memory_pool",
            "model_executor.forward_batch_info",
            "model_executor.runner.decode_cuda_graph_runner",
            "model_executor.runner.eager_runner",
            "model_executor.runner_backend.full_cuda_graph_backend",
            "utils.profile_utils",
        ),
        views_with_devices=("lora.backend.chunked_backend", "lora.backend.triton_backend"),
        as_cuda=(
            "sglang.kernels.ops.attention.extend_attention",
            "sglang.srt.managers.overlap_utils",
        ),
        hooks={
            "sglang.kernels.ops.gemm.fp8_kernel.w8a8_block_fp8_matmul_triton": "quantized:block_product",
            f"{_WORKER}.deserialize_own_rank": "hooks:deserialized",
            f"{_UPDATER}.update_weights_from_disk": "hooks:answered",
            f"{_UPDATER}.update_weights_from_tensor": "hooks:answered",
        },
        model_config="sglang.srt.arg_groups.model_override_base:model_config_of",
        resolved="sglang.srt.arg_groups.model_override_base:resolved_view",
        capabilities=True,
    ),
)


def of_sglang(number: str) -> Release | None:
    """The release of this number. Each is served for itself: SGLang moves what the adapter needs between two."""
    return next((one for one in RELEASES if one.number == number), None)


def of_torch(number: str) -> Release | None:
    """The release for a version of torch."""
    return next((one for one in RELEASES if one.torch == minor(number)), None)


def minor(number: str) -> str:
    """The first two numbers of a version."""
    return ".".join(number.split(".")[:2])


@cache
def installed() -> Release:
    """The release in this interpreter. Raises RuntimeError if it is none of these."""
    found = of_sglang(version("sglang"))
    if found is None:
        raise RuntimeError(
            f"SGLang {version('sglang')} is none of the releases that sglang-flagos knows"
        )
    return found
