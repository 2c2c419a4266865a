"""Automatic mixed precision on the flagos device."""

from __future__ import annotations

import functools
from typing import Any

import torch

__all__ = [
    "GradScaler",
    "autocast",
    "custom_bwd",
    "custom_fwd",
    "get_amp_supported_dtype",
    "is_autocast_available",
]


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Types autocast may compute in; torch asks before entering an autocast region."""
    return [torch.bfloat16, torch.float16]


def is_autocast_available() -> bool:
    """True: the autocast rules are registered for the device."""
    return torch.amp.is_autocast_available("flagos")


class autocast(torch.amp.autocast):
    """`torch.autocast("flagos", ...)`."""

    def __init__(
        self,
        enabled: bool = True,
        dtype: torch.dtype | None = None,
        cache_enabled: bool | None = None,
    ) -> None:
        super().__init__("flagos", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)


class GradScaler(torch.amp.GradScaler):
    """`torch.amp.GradScaler("flagos", ...)`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("flagos", *args, **kwargs)


custom_fwd = functools.partial(torch.amp.custom_fwd, device_type="flagos")
custom_bwd = functools.partial(torch.amp.custom_bwd, device_type="flagos")
