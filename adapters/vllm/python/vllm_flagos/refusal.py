"""The platform that vLLM gets where flagos is asked for and cannot serve: making it raises the reason."""

from __future__ import annotations

from vllm_flagos import activation


class Refusal:
    """Raises RuntimeError. vLLM makes its platform outside of the region in which it swallows errors."""

    def __init__(self) -> None:
        raise RuntimeError(
            f"flagos cannot serve vLLM: {activation.problem()}. To run vLLM on another platform, take "
            "flagos out of VLLM_PLUGINS, or uninstall vllm-flagos"
        )
