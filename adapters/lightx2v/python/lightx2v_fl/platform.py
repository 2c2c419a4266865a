"""The device class of the platform, with the methods that LightX2V calls."""

from __future__ import annotations

from lightx2v_fl.device import FLAGOS, device_name


class FlagosDevice:
    """``PLATFORM=flagos``."""

    name = FLAGOS

    @staticmethod
    def get_device() -> str:
        """The name that LightX2V writes to ``AI_DEVICE``; ``torch.<name>`` is the device module."""
        name = device_name()
        if name == FLAGOS:
            import torch_fl  # noqa: F401  raises the reason when the device cannot be registered
        return name

    @staticmethod
    def init_device_env() -> None:
        """Add our operators to LightX2V's tables. LightX2V calls this for the chosen platform only."""
        from lightx2v_fl import completions, tables

        tables.install()
        completions.install()

    @staticmethod
    def is_available() -> bool:
        """Whether the device can be used."""
        import torch

        name = device_name()
        if name == "cpu":
            return True
        module = getattr(torch, name, None)
        return module is not None and bool(module.is_available())

    @staticmethod
    def init_parallel_env() -> None:
        """Join the other ranks; LightX2V calls this where its configuration has ``parallel``."""
        from lightx2v_fl import parallel

        parallel.join(device_name())
