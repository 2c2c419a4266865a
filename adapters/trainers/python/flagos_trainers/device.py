"""Whether a trainer can have the device flagos in this process."""

from __future__ import annotations


def problem() -> str | None:
    """Why this process has no flagos device, in the core's words; None if it has one."""
    import torch

    if torch.flagos.device_count() > 0:  # type: ignore[attr-defined]
        return None
    import flagos

    try:
        flagos.devices()
    except flagos.FlagosError as error:
        return f"this process has no flagos device: {error}"
    return "this process has no flagos device: `flagos devices` shows the vendors with the reasons"
