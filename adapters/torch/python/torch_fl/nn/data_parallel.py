"""`torch.nn.DataParallel`: runs the module itself on one flagos device. Over several devices it is CUDA's alone."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch

from torch_fl.calls import Args, Kwargs

_DEVICE = "flagos"
_INSTEAD = (
    "torch copies between devices of CUDA alone there. Use torch.nn.parallel.DistributedDataParallel, a process a "
    "device under torchrun"
)


def install() -> None:
    """Make it run on one device, and raise an error that names the alternatives over several. Idempotent."""
    theirs = torch.nn.DataParallel.__init__
    if getattr(theirs, "__module__", None) == __name__:
        return

    @functools.wraps(theirs, assigned=("__doc__", "__name__", "__qualname__"))
    def initialize(
        self: Any,
        module: torch.nn.Module,
        device_ids: Any = None,
        output_device: Any = None,
        dim: int = 0,
    ) -> None:
        if not _on_device(module):
            theirs(self, module, device_ids, output_device, dim)
            return
        devices = _devices(device_ids)
        if len(devices) > 1:
            raise NotImplementedError(
                f"torch.nn.DataParallel over the flagos devices {[device.index for device in devices]}: {_INSTEAD}, "
                "or device_ids=[0]"
            )
        torch.nn.Module.__init__(self)
        self.dim = dim
        self.module = module.to(devices[0])
        # With these values torch scatters and gathers nothing and calls the module.
        self.device_ids = []
        self.output_device = self.src_device_obj = devices[0]
        self.register_forward_pre_hook(_move_inputs, with_kwargs=True)

    torch.nn.DataParallel.__init__ = initialize  # type: ignore[method-assign]
    for name in (
        "broadcast",
        "broadcast_coalesced",
        "reduce_add",
        "reduce_add_coalesced",
        "gather",
    ):
        _refuse_over_devices(name)


def _refuse_over_devices(name: str) -> None:
    """Make a function of torch.nn.parallel.comm tell that it is CUDA's alone when it gets flagos tensors."""
    from torch.nn.parallel import comm

    theirs = getattr(comm, name)

    @functools.wraps(theirs)
    def refuse(tensors: Any, *arguments: Any, **named: Any) -> Any:
        for each in torch.utils._pytree.tree_leaves(tensors):
            if isinstance(each, torch.Tensor) and each.device.type == _DEVICE:
                raise NotImplementedError(
                    f"torch.nn.parallel.comm.{name} of flagos tensors: {_INSTEAD}"
                )
        return theirs(tensors, *arguments, **named)

    setattr(comm, name, refuse)


def _on_device(module: torch.nn.Module) -> bool:
    """Whether the module is on a flagos device, or would be moved there because torch sees no other."""
    held = next(itertools.chain(module.parameters(), module.buffers()), None)
    if held is not None and held.device.type != "cpu":
        return held.device.type == _DEVICE
    available: str | None = torch._utils._get_available_device_type()
    return available == _DEVICE


def _devices(device_ids: Any) -> list[torch.device]:
    """The devices given as numbers, names or devices; all devices if none is given."""
    flagos: Any = getattr(torch, _DEVICE)
    named = range(flagos.device_count()) if device_ids is None else device_ids
    found = [
        torch.device(_DEVICE, each) if isinstance(each, int) else torch.device(each)
        for each in named
    ]
    if not found:
        raise ValueError("torch.nn.DataParallel: device_ids is empty; name one device, as [0]")
    for device in found:
        if device.type != _DEVICE:
            raise ValueError(
                f"torch.nn.DataParallel of a module on flagos: {device} is not a flagos device"
            )
    return [torch.device(_DEVICE, device.index or 0) for device in found]


def _move_inputs(module: Any, arguments: Args, named: Kwargs) -> tuple[Args, Kwargs]:
    """Arguments may be on any device, including the CPU, as torch documents them."""
    from torch.distributed.utils import _to_kwargs

    moved, moved_named = _to_kwargs(arguments, named, module.src_device_obj, False)
    return (moved[0] if moved else ()), (moved_named[0] if moved_named else {})
