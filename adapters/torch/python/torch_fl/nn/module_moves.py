"""Keeps parameters the same objects when a module moves to flagos or back.

`module.cuda()` gives each parameter new data in place, so tied weights stay tied, an optimizer built
before the move stays valid and recurrent layers keep their weight lists. Whether a tensor may take
the data of another is an operator of its own, which knows the built-in devices only: for others
`Module.to` makes new parameters, one for each place a tied parameter appears in, and training goes
wrong silently. Answering the operator for flagos is all it takes, since the tensors of the device
are plain ones: nothing but storage and metadata.
"""

from __future__ import annotations

import torch

_OPERATOR = "_has_compatible_shallow_copy_type"

_library: torch.library.Library | None = None


def install() -> None:
    """Register the check with torch. Idempotent."""
    global _library
    if _library is None:
        _library = torch.library.Library("aten", "IMPL")
        _library.impl(_OPERATOR, _may_take_data_of, "PrivateUse1")


def _may_take_data_of(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    # torch's own condition for two tensors of built-in devices: the same kind of TensorImpl.
    return tensor.layout == other.layout and tensor.device.type != "meta" != other.device.type
