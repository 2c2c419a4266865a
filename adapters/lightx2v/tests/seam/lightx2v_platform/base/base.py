"""The device is known before the platform's `init_device_env`, and asked for its presence after."""

import os

from lightx2v_platform.base import global_var
from lightx2v_platform.registry_factory import PLATFORM_DEVICE_REGISTER


def _device(platform):
    device = PLATFORM_DEVICE_REGISTER.get(platform)
    if device is None:
        known = list(PLATFORM_DEVICE_REGISTER)
        raise RuntimeError(f"Unsupported PLATFORM: {platform}. Available PLATFORM: {known}")
    return device


def init_ai_device(platform="cuda"):
    device = _device(platform)
    global_var.PLATFORM = platform
    global_var.AI_DEVICE = device.get_device()
    device.init_device_env()
    return global_var.AI_DEVICE


def check_ai_device(platform="cuda"):
    if not _device(platform).is_available() and os.getenv("SKIP_PLATFORM_CHECK") not in (
        "1",
        "True",
    ):
        raise RuntimeError(f"AI device for platform '{platform}' is not available.")
    return True
