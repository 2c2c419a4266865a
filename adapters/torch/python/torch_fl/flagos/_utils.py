"""Indices of devices from arguments that name a device."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeAlias, TypeVar

import torch

from torch_fl.flagos._lifecycle import _lazy_init

Device: TypeAlias = torch.device | str | int | None

_P = ParamSpec("_P")
_R = TypeVar("_R")


def constant_in_graphs(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Is `torch.compiler.assume_constant_result` without importing Dynamo: a graph has the result as it was
    when it was traced."""
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def _get_device_index(device: Device, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of `device`; of the current device where it names none and `optional` is set.

    A CPU device is -1 where `allow_cpu` is set. Raises ValueError for another device type, or for a
    missing index that is not optional.
    """
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if allow_cpu and device.type == "cpu":
            return -1
        if device.type != "flagos":
            raise ValueError(f"expected a flagos device, got {device}")
        device = device.index
    elif device is not None:
        raise TypeError(f"expected a device, an index or None, got {type(device).__name__}")
    if device is not None:
        return device
    if not optional:
        raise ValueError("expected a device with an index, such as 'flagos:0', or an integer")
    _lazy_init()
    return torch.accelerator.current_device_index()  # which Dynamo knows, with a guard
