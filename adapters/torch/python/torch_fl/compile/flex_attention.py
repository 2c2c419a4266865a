"""FlexAttention on the device: torch keeps a list of the devices it lets in.

What it does there without torch.compile is written for any device, gradients included. Its kernels are
written for each: under the cuda vendor they are CUDA's, and the host vendor has none. There a compiled
program calls it between two graphs, and `fullgraph=True` is an error.
"""

from __future__ import annotations

import torch
from torch.nn.attention import flex_attention

from torch_fl import _vendor

_DEVICE = "flagos"
_HAS_NO_KERNEL = not _vendor.on_cuda()

_validate = flex_attention._validate_device


def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    if query.device.type != _DEVICE:
        _validate(query, key, value)
    elif _HAS_NO_KERNEL and torch.compiler.is_compiling():
        raise NotImplementedError(
            "FlexAttention has no compiled kernel on the host vendor of flagos: call it outside of "
            "torch.compile (torch.compiler.disable), where it computes the same"
        )


def register() -> None:
    """Let flagos in."""
    setattr(flex_attention, "_validate_device", _validate_device)  # noqa: B010
