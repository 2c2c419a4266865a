"""vLLM, as the shared declaration of operators names it."""

from __future__ import annotations

from flagos_serving.declaration import Framework, device_type

VLLM = Framework("vLLM", "vllm", "vllm_flagos")


def triton_missing() -> str | None:
    """Why vLLM's Triton kernels cannot serve in this process; None when they can. Imports neither."""
    return VLLM.triton_missing


def captures_graphs() -> bool:
    """Whether vLLM's graphs are served: on CUDA, by ``torch.flagos.graph``."""
    return device_type() == "cuda"
