"""safetensors reads straight onto the device: `load_file(f, device="flagos:0")`, `safe_open(...)`.

Its parser knows the names of torch's built-in devices only, but hands a bare index on to torch, which
takes it for the accelerator's: flagos, once registered. A device that waits for its first mention
(torch_fl.waiting) is registered by that, so importing this module does not ask for it.
"""

from __future__ import annotations

import sys
from typing import Any

import torch

_DEVICE = "flagos"


def _known(device: Any) -> Any:
    """`device` as safetensors understands it; unchanged if it does not name flagos."""
    name, _, index = str(device).partition(":")
    if name != _DEVICE:
        return device
    torch.device(_DEVICE)  # torch notices the name
    from torch_fl import flagos

    return int(index) if index else flagos.current_device()


class _Opened(type):
    native: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.native)


def register() -> None:
    """Replace the class where safetensors looks for it. Idempotent."""
    import safetensors

    opened = safetensors.safe_open
    if isinstance(opened, _Opened):
        return

    class safe_open(metaclass=_Opened):
        # A class, because programs use the name in annotations. The native class allows no subclass, so calling this
        # one returns an instance of the native one.
        native = opened

        def __new__(cls, filename: Any, framework: Any, device: Any = "cpu", **options: Any) -> Any:
            return opened(filename, framework, _known(device), **options)

    safe_open.__doc__ = opened.__doc__
    for place in ("safetensors", "safetensors.torch"):
        module = sys.modules.get(place)
        if getattr(module, "safe_open", None) is opened:
            setattr(module, "safe_open", safe_open)  # noqa: B010
