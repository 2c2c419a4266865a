"""Runs at import: every plugin is called, whatever the platform is; nothing keeps it from running twice."""

import os
import sys
from importlib.metadata import entry_points

from lightx2v_platform import *  # noqa: F403
from lightx2v_platform.base import check_ai_device, init_ai_device


def _load_platform_plugins():
    for entry_point in entry_points(group="lightx2v.platform_plugins"):
        try:
            entry_point.load()()
            print(f"loaded {entry_point.name}", file=sys.stderr)
        except Exception as error:
            print(f"Failed to load platform plugin '{entry_point.name}': {error}", file=sys.stderr)


def set_ai_device():
    platform = os.getenv("PLATFORM", "cuda")
    _load_platform_plugins()
    init_ai_device(platform)
    check_ai_device(platform)


set_ai_device()
from lightx2v_platform.ops import *  # noqa: E402, F403
