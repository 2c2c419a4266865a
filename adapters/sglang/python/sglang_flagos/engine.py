"""SGLang, as the shared declaration of operators names it."""

from __future__ import annotations

from flagos_serving.declaration import Framework, Implementation, deferred

SGLANG = Framework("SGLang", "sglang", "sglang_flagos")


def triton_missing() -> str | None:
    """Why SGLang's Triton kernels cannot serve in this process; None when they can. Imports neither."""
    return SGLANG.triton_missing


def triton_kernel(name: str) -> Implementation:
    """A kernel of `flagos_serving.triton_kernels`, imported at its first call."""
    return deferred("flagos_serving.triton_kernels", name)
