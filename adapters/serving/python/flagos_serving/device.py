"""Whether the device flagos serves an engine in this process."""

from __future__ import annotations

from importlib import import_module

_NAME = "flagos"


def device_problem() -> str | None:
    """Why an engine cannot use the device here, with the remedy; None if it can. Imports torch and torch_fl."""
    try:
        import torch

        import_module("torch_fl")
        devices = torch.accelerator.device_count()
        accelerator = torch.accelerator.current_accelerator()
    except Exception as error:
        return f"the device flagos cannot be used ({type(error).__name__}: {error}): `flagos doctor` says more"
    if accelerator is None or accelerator.type != _NAME:
        return (
            f"torch's accelerator in this process is {accelerator}, not flagos: `flagos doctor` says why, "
            "and TORCH_DEVICE_BACKEND_AUTOLOAD=0 must not be set"
        )
    if devices == 0:
        return f"this process has no flagos device: {_without_devices()}"
    return None


def _without_devices() -> str:
    """The core's error: a broken flagos.toml or variable, or a missing vendor."""
    import flagos

    try:
        flagos.devices()
    except flagos.FlagosError as error:
        return str(error)
    return "`flagos devices` shows the vendors with the reasons"
