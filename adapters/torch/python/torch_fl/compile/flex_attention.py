"""FlexAttention on the device: torch has a list of the devices that may use it.

What it does there without torch.compile is written for any device, gradients included. Its kernels are
written for each native device. Those of the CPU (`flex_lowering`), which serve where host code computes on
device memory, have no gradients and give no log-sum-exp. With these a compiled program calls it between two
graphs, and `fullgraph=True` is an error.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.attention import flex_attention

from torch_fl.native import native

_DEVICE = "flagos"
_CPUS_KERNEL = native().compiled_by == "host code"

_validate = flex_attention._validate_device
_apply = flex_attention._apply_kernel_options


def _refuse(what: str) -> None:
    raise NotImplementedError(
        f"FlexAttention with {what} has no compiled kernel on this device: call it outside of "
        "torch.compile (torch.compiler.disable), where it computes the same"
    )


def _validate_device(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    if query.device.type != _DEVICE:
        _validate(query, key, value)
    elif (
        _CPUS_KERNEL
        and torch.compiler.is_compiling()
        and torch.is_grad_enabled()
        and (query.requires_grad or key.requires_grad or value.requires_grad)
    ):
        _refuse("gradients")


def _apply_kernel_options(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    return_lse: bool,
    kernel_options: Any,
    return_aux: Any = None,
) -> Any:
    options = _apply(query, key, value, return_lse, kernel_options, return_aux)
    if _CPUS_KERNEL and query.device.type == _DEVICE and torch.compiler.is_compiling():
        if return_lse or return_aux is not None:
            _refuse("auxiliary outputs")
        # torch requires it wherever gradients are enabled, except on the CPU.
        options["OUTPUT_LOGSUMEXP"] = False
    return options


def register() -> None:
    """Add flagos to the list."""
    setattr(flex_attention, "_validate_device", _validate_device)  # noqa: B010
    setattr(flex_attention, "_apply_kernel_options", _apply_kernel_options)  # noqa: B010
