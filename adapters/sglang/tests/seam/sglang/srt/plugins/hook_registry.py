import functools
import pkgutil
from collections import defaultdict
from enum import Enum
from typing import ClassVar


class HookType(Enum):
    AFTER = "after"
    AROUND = "around"


class HookRegistry:
    _hooks: ClassVar[dict] = defaultdict(list)
    _patched: ClassVar[set] = set()

    @classmethod
    def register(cls, target, hook, hook_type=HookType.AFTER, *, source=None):
        cls._hooks[target].append((hook_type, hook, source))

    @classmethod
    def apply_hooks(cls):
        for target, hooks in cls._hooks.items():
            if target in cls._patched:
                continue
            try:
                cls._apply_target(target, hooks)
                cls._patched.add(target)
            except Exception:
                pass

    @staticmethod
    def _apply_target(target, hooks):
        path, name = target.rsplit(".", 1)
        holder = pkgutil.resolve_name(path)
        original = getattr(holder, name)
        raw = vars(holder).get(name) if isinstance(holder, type) else None
        for _, hook, _ in hooks:
            wrapped = functools.wraps(original)(functools.partial(_call, hook, original))
            if isinstance(holder, type) and not isinstance(raw, staticmethod):
                wrapped = _method(hook, original)
            elif isinstance(raw, staticmethod):
                wrapped = staticmethod(wrapped)
            setattr(holder, name, wrapped)


def _call(hook, original, *args, **kwargs):
    return hook(original, *args, **kwargs)


def _method(hook, original):
    @functools.wraps(original)
    def wrapper(*args, **kwargs):
        return hook(original, *args, **kwargs)

    return wrapper
