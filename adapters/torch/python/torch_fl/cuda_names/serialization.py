"""Saved files say `cuda`, as the program's files do elsewhere, and `cuda` in files and in `map_location` is flagos."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl.cuda_names.arguments import named

_BEFORE_TORCHS_OWN = 5  # torch's packages have priorities from 10 to 26


def install() -> None:
    """Register the locations with torch."""
    torch.serialization.register_package(_BEFORE_TORCHS_OWN, _tag, _deserialize)


def _tag(storage: Any) -> str | None:
    device = storage.device
    return f"cuda:{device.index or 0}" if device.type == "flagos" else None


def _deserialize(storage: Any, location: str) -> Any:
    if location.partition(":")[0] != "cuda":
        return None
    return torch.serialization._deserialize("privateuse1", storage, named(location))
