"""`.cuda()` and `.is_cuda` of tensors, storages and modules."""

from __future__ import annotations

from typing import Any

import torch

from flagos.on_import import when_imported
from torch_fl import flagos
from torch_fl.cuda_names import callers

_TYPES = "torch.cuda."
_FLAGOS_TYPES = "torch.flagos."

_torchs_is_cuda: Any = torch._C.TensorBase.is_cuda
_torchs_type = torch._C.TensorBase.type


def install() -> None:
    """Replace the methods."""
    replaced: tuple[tuple[type, str, Any], ...] = (
        (torch.Tensor, "cuda", cuda),
        (torch.Tensor, "is_cuda", property(is_cuda)),
        (torch.Tensor, "type", type_),
        (torch.nn.Module, "cuda", module_to_cuda),
        (torch.UntypedStorage, "cuda", storage_to_cuda),
        (torch.TypedStorage, "cuda", storage_to_cuda),
    )
    for owner, name, value in replaced:
        setattr(owner, name, value)
    when_imported("torch._dynamo.variables.tensor", _complete_dynamo)


def _device(device: Any) -> torch.device:
    """The flagos device that an argument of `.cuda()` names: None, a number, a string or a device."""
    if device is None:
        return torch.device("flagos", flagos.current_device())
    named = torch.device("flagos", device) if isinstance(device, int) else torch.device(device)
    if named.type != "flagos":
        raise RuntimeError(f"Invalid device, must be cuda device: got {named}")
    return named


def cuda(
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:
    """The tensor on a flagos device, the current one by default; itself where it is there."""
    return self.to(_device(device), non_blocking=non_blocking, memory_format=memory_format)


def is_cuda(self: torch.Tensor) -> bool:
    """Whether the tensor is on a flagos device. torch itself hears whether it is on NVIDIA's."""
    if self.device.type == "flagos":
        return not callers.is_torch(1)
    return bool(_torchs_is_cuda.__get__(self))


def type_(
    self: torch.Tensor, dtype: Any = None, non_blocking: bool = False, **named: Any
) -> torch.Tensor | str:
    """`Tensor.type`, which reads and gives `torch.cuda.FloatTensor` for `torch.flagos.FloatTensor`."""
    if dtype is None:
        name: str = _torchs_type(self, **named)
        return name.replace(_FLAGOS_TYPES, _TYPES, 1)
    if isinstance(dtype, str):
        dtype = dtype.replace(_TYPES, _FLAGOS_TYPES, 1)
    cast: torch.Tensor = _torchs_type(self, dtype, non_blocking, **named)
    return cast


def module_to_cuda(self: torch.nn.Module, device: Any = None) -> torch.nn.Module:
    """Move parameters and buffers to a flagos device, the current one by default."""
    moved: torch.nn.Module = self._apply(lambda tensor: tensor.cuda(device))
    return moved


def storage_to_cuda(self: Any, device: Any = None, non_blocking: bool = False) -> Any:
    """A copy of the storage on a flagos device, the current one by default; itself where it is there."""
    named = _device(device)
    if self.device == named:
        return self
    return self.to(device=named, non_blocking=non_blocking)


def _complete_dynamo() -> None:
    """Let compiled programs read `is_cuda` as others do."""
    from torch._dynamo.variables.constant import ConstantVariable
    from torch._dynamo.variables.tensor import TensorVariable

    def method_attr_is_cuda(self: Any, tx: Any) -> Any:
        if self.device is None:
            return None
        return ConstantVariable.create(self.device.type in ("cuda", "flagos"))

    setattr(TensorVariable, method_attr_is_cuda.__name__, method_attr_is_cuda)
