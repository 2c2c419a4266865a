"""Fake tensors of the device, computed as those of the native device.

Torch's fake kernels ask for the name of the device where results of its kernels differ in size or strides, and a
compiled program relies on what they promise. On flagos the native device's kernels run, so what holds for their
results is what the fake kernels promise for the native device.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    FakeTensor,
    FakeTensorMode,
    in_kernel_invocation_manager,
)
from torch.utils import _pytree as pytree

from torch_fl.native import native

_DEVICE = "flagos"

_dispatch = FakeTensorMode._dispatch_impl


@functools.wraps(_dispatch)
def _as_native(
    self: FakeTensorMode,
    func: Any,
    types: Sequence[type],
    args: Sequence[object],
    kwargs: Mapping[str, object],
) -> Any:
    leaves = pytree.arg_tree_leaves(*args, **kwargs)
    fakes = {id(leaf): leaf for leaf in leaves if isinstance(leaf, FakeTensor)}
    device = _device_of(func, leaves, fakes.values())
    if device is None:
        return _dispatch(self, func, types, args, kwargs)
    with _renamed(fakes.values(), device), _uncached(self):
        results = _dispatch(self, func, types, args, kwargs)

    def given(result: FakeTensor) -> FakeTensor:
        if id(result) in fakes or result.fake_device != _native(device):
            return result
        with in_kernel_invocation_manager(self):
            # A new one: dispatch keys, such as that of autocast, are those of the device that a tensor is made with.
            return FakeTensor(
                self, result, device, constant=result.constant, real_tensor=result.real_tensor
            )

    return pytree.tree_map_only(FakeTensor, given, results)


def _device_of(
    func: Any, leaves: Sequence[object], fakes: Iterable[FakeTensor]
) -> torch.device | None:
    """The device that alone decides where results are; None if another one takes part, or none of ours does.

    Only torch's own operators are meant: the fake kernel of any other gets the device of its kernel.
    """
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return None
    if any(isinstance(leaf, torch.device) for leaf in leaves):
        return None
    devices = {fake.fake_device for fake in fakes if not _is_scalar_on_host(fake)}
    device = devices.pop() if len(devices) == 1 else None
    return device if device is not None and device.type == _DEVICE else None


def _is_scalar_on_host(fake: FakeTensor) -> bool:
    return fake.dim() == 0 and fake.fake_device.type == "cpu"


@contextmanager
def _renamed(fakes: Iterable[FakeTensor], device: torch.device) -> Iterator[None]:
    """Has the tensors on `device` be on the native device inside."""
    ours = [fake for fake in fakes if fake.fake_device == device]
    for fake in ours:
        fake.fake_device = _native(device)
    try:
        yield
    finally:
        for fake in ours:
            fake.fake_device = device


@contextmanager
def _uncached(mode: FakeTensorMode) -> Iterator[None]:
    """Has the parts of an operator not be looked up: torch's cache forgets that `prims.as_strided` is a view."""
    enabled, mode.cache_enabled = mode.cache_enabled, False
    try:
        yield
    finally:
        mode.cache_enabled = enabled


def _native(device: torch.device) -> torch.device:
    kind = native().device_type or "cpu"
    return torch.device(kind) if kind == "cpu" else torch.device(kind, device.index)


def register() -> None:
    """Put the renaming around the fake kernels. Idempotent."""
    setattr(FakeTensorMode, "_dispatch_impl", _as_native)  # noqa: B010
