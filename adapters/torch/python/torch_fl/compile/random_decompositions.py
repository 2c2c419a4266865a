"""Random operators of a compiled program, made of the parts that they are made of on the native device.

Equal seeds then give equal numbers. Torch asks for the name of the device, or replaces an operator where none but its
own kernel is registered, and flagos has one for dropout.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import decompositions_for_rng
from torch._decomp.decompositions import dropout

from torch_fl.native import native

_DEVICE = "flagos"


def register() -> None:
    """Trace dropout as for torch's own devices, and Bernoulli's numbers as for the native device. Idempotent."""
    kernels = torch.ops.aten.dropout.default
    for key in (DispatchKey.PrivateUse1, DispatchKey.AutogradPrivateUse1):
        if key not in kernels.py_kernels:
            kernels.py_impl(key)(dropout)
    if native().compiled_by == "host code":
        # Operators → their parts in both, whatever torch annotates.
        tables: tuple[Any, ...] = (
            decompositions_for_rng.extra_random_decomps,
            decompositions_for_rng.rng_decompositions,
        )
        for table in tables:
            for operator, theirs in table.items():
                if operator.name().startswith("aten::bernoulli") and not isinstance(
                    theirs, functools.partial
                ):
                    table[operator] = functools.partial(_undecomposed, theirs)


def _undecomposed(theirs: Callable[..., Any], tensor: Any, *args: Any, **kwargs: Any) -> Any:
    if tensor.device.type == _DEVICE:
        return NotImplemented
    return theirs(tensor, *args, **kwargs)
