"""How SGLang finds its platform."""

import os
import pkgutil
from importlib.metadata import entry_points

from sglang.srt.platforms.interface import SRTPlatform

_current_platform = None


class CudaSRTPlatform(SRTPlatform):
    pass


def _resolve_platform():
    selected = os.environ.get("SGLANG_PLATFORM")
    discovered = {entry.name: entry for entry in entry_points(group="sglang.srt.platforms")}
    if selected:
        if selected not in discovered:
            raise RuntimeError(f"SGLANG_PLATFORM={selected!r} not found")
        result = discovered[selected].load()()
        if result is None:
            raise RuntimeError("activate() returned None")
        return pkgutil.resolve_name(result)()
    activated = {}
    for name, entry in discovered.items():
        try:
            result = entry.load()()
            if result is not None:
                activated[name] = result
        except Exception:
            pass
    if not activated:
        return CudaSRTPlatform() if os.environ.get("SEAM_CUDA") else SRTPlatform()
    if len(activated) > 1:
        raise RuntimeError("Multiple platform plugins activated")
    return pkgutil.resolve_name(next(iter(activated.values())))()


def __getattr__(name):
    global _current_platform
    if name == "current_platform":
        if _current_platform is None:
            _current_platform = _resolve_platform()
        return _current_platform
    raise AttributeError(name)
