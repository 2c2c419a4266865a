"""SGLang, as the shared declaration of operators names it."""

from __future__ import annotations

from flagos_serving.declaration import Framework

SGLANG = Framework("SGLang", "sglang", "sglang_flagos")


def triton_missing() -> str | None:
    """Why SGLang's Triton kernels cannot serve in this process; None when they can. Imports neither."""
    return SGLANG.triton_missing
