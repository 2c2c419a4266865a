"""The platform that SGLang gets where flagos is asked for and cannot serve: making it raises the reason."""

from __future__ import annotations

from sglang.srt.platforms.interface import SRTPlatform

from sglang_flagos import activation


class Refusal(SRTPlatform):
    """Raises RuntimeError. SGLang makes its platform outside of the region in which it swallows errors."""

    def __init__(self) -> None:
        raise RuntimeError(
            f"flagos cannot serve SGLang: {activation.problem()}. To run SGLang on another platform, unset "
            "SGLANG_PLATFORM, or uninstall sglang-flagos"
        )
