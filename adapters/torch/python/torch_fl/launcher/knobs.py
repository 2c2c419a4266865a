"""Triton's knobs and driver, handed to Rust as the objects that are read at every launch."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from flagos import _core
from torch_fl.launcher import compiled, tensors

_done = False


def declare() -> None:
    """Hand them over, once. Triton has launched something before, so that its driver is there."""
    global _done
    if _done:
        return
    from triton import knobs
    from triton.runtime import driver

    active = driver.active
    known = compiled.known_driver(active)
    tensors.set_up()
    _core.launch_constants(_immutable_types())
    hooks = vars(type(knobs.runtime))
    enter, leave = hooks["launch_enter_hook"], hooks["launch_exit_hook"]
    _core.launch_knobs(
        vars(knobs.runtime),
        vars(knobs.compilation),
        (enter, enter.calls),
        (leave, leave.calls),
        vars(driver),
        # An object that is never the active driver: nothing is launched natively then.
        active if known is not None else object(),
        _current_device(active),
        active.get_current_stream,
        known.name if known is not None else "",
        _device_type(active) if known is not None else -1,
    )
    _done = True


def _current_device(active: Any) -> Any:
    """torch's own function behind the one that first makes sure that CUDA is initialised: it is."""
    if active.get_current_device is torch.cuda.current_device and torch.cuda.is_initialized():
        return torch._C._cuda_getDevice  # type: ignore[attr-defined, unused-ignore]
    return active.get_current_device


def _device_type(active: Any) -> int:
    """torch's number of the kind of device that the driver's tensors are on."""
    return int(getattr(torch.autograd.DeviceType, active.get_active_torch_device().type.upper()))


def _immutable_types() -> list[type]:
    """Types of compile-time constants whose objects never change."""
    from triton.language.core import dtype
    from triton.runtime.jit import JITFunction

    language = importlib.import_module("triton.language.core")
    kinds: list[type] = [dtype, torch.dtype, JITFunction, type]
    kinds += [kind for kind in (getattr(language, "pointer_type", None),) if kind is not None]
    return kinds
