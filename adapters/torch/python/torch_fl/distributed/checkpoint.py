"""torch.distributed.checkpoint where torch has another accelerator beside flagos.

Its loader copies to the CPU what is on the first kind of device it finds, which is torch's own, and takes everything
else for the CPU's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.checkpoint import filesystem

_Loader = filesystem._OverlappingCpuLoader


class _NativeLoader(_Loader):
    """Reads flagos tensors as native tensors over the same memory, on the same streams."""

    def __init__(
        self, resolve_fun: Callable[[Any], torch.Tensor], *args: Any, **named: Any
    ) -> None:
        super().__init__(resolve_fun, *args, **named)
        self.resolve_fun = self._resolved
        self._resolve = resolve_fun

    def _resolved(self, item: Any) -> torch.Tensor:
        tensor = self._resolve(item)
        if tensor.device.type == "flagos" and self.device_type != "flagos":
            return tensor.detach().to(self.device_type)
        return tensor


def register() -> None:
    """Replace the loader where torch looks for it. Idempotent."""
    setattr(filesystem, "_OverlappingCpuLoader", _NativeLoader)  # noqa: B010
