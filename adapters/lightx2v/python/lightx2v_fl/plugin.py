"""Registration of the platform ``flagos`` with LightX2V.

LightX2V calls every plugin at its import, for any chosen platform, so :func:`register` only adds the device
class to a table. The device class does the rest, once LightX2V has chosen it.
"""

from __future__ import annotations

import os
import sys
from typing import Any

PLATFORM = "flagos"


def register() -> None:
    """Add the platform to LightX2V's table. Idempotent; touches nothing else."""
    from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER

    from lightx2v_fl.platform import FlagosDevice

    present = PLATFORM_DEVICE_REGISTER.get(PLATFORM)
    if present is FlagosDevice:
        return
    if present is not None:
        raise RuntimeError(
            f"LightX2V has a platform {PLATFORM!r} already, {present.__module__}."
            f"{present.__qualname__}: uninstall the other plugin, or lightx2v-fl"
        )
    PLATFORM_DEVICE_REGISTER[PLATFORM] = FlagosDevice


def activate() -> None:
    """Choose the platform from the program, before or after LightX2V is imported.

    Before the import it acts like ``PLATFORM=flagos``. After the import LightX2V's modules keep their
    device, so only this package's operators are added on that device, which FLAGOS_LIGHTX2V_DEVICE must name.

    Raises RuntimeError if ``PLATFORM`` names another platform, or if LightX2V runs on another device.
    """
    requested = os.environ.get("PLATFORM", PLATFORM)
    variables: Any = sys.modules.get("lightx2v_platform.base.global_var")
    chosen = getattr(variables, "AI_DEVICE", None)
    if chosen is None:
        if requested != PLATFORM:
            raise RuntimeError(
                f"PLATFORM={requested} is set: unset it, or set PLATFORM={PLATFORM}, for flagos to serve LightX2V"
            )
        register()
        os.environ["PLATFORM"] = PLATFORM
        return
    from lightx2v_fl.platform import FlagosDevice

    wanted = FlagosDevice.get_device()
    if chosen != wanted:
        raise RuntimeError(
            f"LightX2V was imported before and runs on {chosen!r}, not on {wanted!r}: call "
            "lightx2v_fl.activate() before `import lightx2v`, or set FLAGOS_LIGHTX2V_DEVICE="
            f"{chosen} to give our operators to LightX2V on that device"
        )
    register()
    FlagosDevice.init_device_env()
