"""`torch.library.opcheck` for tensors of the device: one of its tests knows torch's own devices alone."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch.testing._internal.optests import autograd_registration
from torch.utils import _pytree as pytree

_DEVICE = "flagos"
_AUTOGRAD = ("AutogradPrivateUse1", "Autograd", "CompositeImplicitAutograd")
_IMPORTERS = ("torch.testing._internal.optests", "torch.testing._internal.optests.generate_tests")

_check = autograd_registration.autograd_registration_check


@functools.wraps(_check)
def _checked(op: Any, args: Any, kwargs: Any) -> None:
    leaves = pytree.arg_tree_leaves(*args, **kwargs)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    ours = any(tensor.device.type == _DEVICE for tensor in tensors)
    if not ours or not any(tensor.requires_grad for tensor in tensors):
        _check(op, args, kwargs)
        return
    if any(torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), key) for key in _AUTOGRAD):
        return
    # The operator has no kernel for autograd, so nothing but its own kernel could make a result require gradients.
    with autograd_registration.set_autograd_fallback_mode("nothing"):
        results = pytree.tree_leaves(op(*args, **kwargs))
    given = {id(leaf) for leaf in leaves}
    for result in results:
        if isinstance(result, torch.Tensor) and result.requires_grad and id(result) not in given:
            raise AssertionError(
                f"{op.name()}: a result requires gradients, but the operator has no kernel for autograd: its kernel "
                "calls differentiable operators. Register the derivative by torch.library.register_autograd, or the "
                "operator as CompositeImplicitAutograd"
            )


def register() -> None:
    """Put the test for the device before torch's. Idempotent."""
    importers = [sys.modules.get(name) for name in _IMPORTERS]
    for module in (autograd_registration, *importers):
        if hasattr(module, "autograd_registration_check"):
            setattr(module, "autograd_registration_check", _checked)  # noqa: B010
