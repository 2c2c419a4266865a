"""Flagos tensors in libraries that take CUDA's array interface: CuPy, Numba and others."""

from __future__ import annotations

from typing import Any

import torch

from torch_fl.native import native

_DEVICE = "flagos"

_of_torch = torch.Tensor.__cuda_array_interface__


def _array_interface(self: torch.Tensor) -> Any:
    shared = native().exported(self) if self.device.type == _DEVICE else self
    return _of_torch.__get__(shared)


def install() -> None:
    """Replace the property of torch.Tensor. Tensors of other devices still get torch's own."""
    replacement = property(_array_interface, doc=_of_torch.__doc__)
    setattr(torch.Tensor, "__cuda_array_interface__", replacement)  # noqa: B010
