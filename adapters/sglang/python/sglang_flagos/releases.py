"""The releases of SGLang that this package serves, with what belongs to them. Imports neither torch nor SGLang."""

from __future__ import annotations

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
            "managers.utils",
            "mem_cache.memory_pool",
            "model_executor.forward_batch_info",
            "model_executor.runner.eager_runner",
            "model_executor.runner_backend.full_cuda_graph_backend",
        ),
        views_with_devices=("lora.backend.chunked_backend", "lora.backend.triton_backend"),
        as_cuda=(
            "sglang.kernels.ops.attention.extend_attention",
            "sglang.srt.managers.overlap_utils",
        ),
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
