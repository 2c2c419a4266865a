"""SGLang swallows what plugins raise."""

import os
from contextlib import suppress
from importlib.metadata import entry_points

from sglang.srt.plugins.hook_registry import HookRegistry

_plugins_loaded = False


def load_plugins():
    global _plugins_loaded
    if _plugins_loaded:
        return
    _plugins_loaded = True
    allowed = os.environ.get("SGLANG_PLUGINS")
    for entry in entry_points(group="sglang.srt.plugins"):
        if allowed and entry.name not in [name.strip() for name in allowed.split(",")]:
            continue
        with suppress(Exception):
            entry.load()()
    HookRegistry.apply_hooks()
