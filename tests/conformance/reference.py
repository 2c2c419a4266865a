"""The native device under comparison: where samples are made and the reference runs.

One for the whole process, as the databases of torch are asked for the samples of a device.
"""

from __future__ import annotations

from typing import Any

import torch

from torch_fl_tools.comparing.transfer import Transfer, is_named

_device = torch.device("cpu")


def use(name: str) -> None:
    """Chooses the device, such as ``cpu`` or ``cuda``; before any sample is made."""
    global _device
    _device = torch.device(name)


def device_type() -> str:
    """``cpu`` or ``cuda``."""
    return _device.type


def is_named_by(value: Any) -> bool:
    """Whether ``value`` is the reference device, as an object or by its name."""
    return is_named(_device.type, value)


def transfer_to(device: torch.device) -> Transfer:
    """Copies arguments of the reference device to ``device``."""
    return Transfer(device, _device.type)
