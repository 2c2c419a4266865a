"""Stands in for `torch.flagos` when the device could not be registered during `import torch`."""

from __future__ import annotations

import sys
import types

import torch


class _Unavailable(types.ModuleType):
    """Reports 0 devices, and raises the reason at any other use."""

    def __init__(self, reason: str) -> None:
        super().__init__("torch.flagos", f"Not registered. {reason}")
        self._reason = reason

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def __getattr__(self, name: str) -> object:
        # Introspection (inspect, pickle, doctest) probes every module for dunder attributes.
        if name.startswith("__"):
            raise AttributeError(name)
        raise ImportError(f"the flagos device was not registered. {self._reason}")


def install(reason: str) -> None:
    """Make `torch.flagos` report `reason`, leaving the PrivateUse1 slot free for another plugin."""
    module = _Unavailable(reason)
    setattr(torch, "flagos", module)  # noqa: B010
    sys.modules["torch.flagos"] = module


def uninstall() -> None:
    """Remove the stand-in, if there is one, before a later registration succeeds."""
    if isinstance(getattr(torch, "flagos", None), _Unavailable):
        delattr(torch, "flagos")
        sys.modules.pop("torch.flagos", None)
