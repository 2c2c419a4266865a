"""Chooses the platform as vLLM does: asks built-in ones and plugins, swallows errors; a plugin beats the rest."""

import importlib
import os
from importlib.metadata import entry_points


def _cuda():
    return "vllm.platforms.interface.Cuda" if os.environ.get("SEAM_CUDA") else None


builtin_platform_plugins = {"cuda": _cuda}
_current_platform = None


def _plugins(group):
    allowed = os.environ.get("VLLM_PLUGINS")
    names = None if allowed is None else allowed.split(",")
    return {e.name: e.load() for e in entry_points(group=group) if names is None or e.name in names}


def resolve_current_platform_cls_qualname():
    if os.environ.get("VLLM_TARGET_DEVICE") == "cpu":  # vLLM 0.33 asks nobody then
        return "vllm.platforms.interface.Cpu"
    plugins, active = _plugins("vllm.platform_plugins"), []
    for name, asked in [*builtin_platform_plugins.items(), *plugins.items()]:
        try:
            if asked() is not None:
                active.append(name)
        except Exception:
            pass
    ours = [name for name in active if name in plugins]
    if len(ours) > 1:
        raise RuntimeError(f"Only one platform plugin can be activated, but got: {ours}")
    if ours:
        return plugins[ours[0]]()
    if active:
        return builtin_platform_plugins[active[0]]()
    return "vllm.platforms.interface.Unspecified"


def __getattr__(name):
    global _current_platform
    if name != "current_platform":
        raise AttributeError(name)
    if _current_platform is None:
        module, _, found = resolve_current_platform_cls_qualname().rpartition(".")
        _current_platform = getattr(importlib.import_module(module), found)()
    return _current_platform


def load_general_plugins():
    for plugin in _plugins("vllm.general_plugins").values():
        plugin()
