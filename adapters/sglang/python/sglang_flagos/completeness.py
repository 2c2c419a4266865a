"""Whether all of the adapter is in place: SGLang goes on where a plugin or a hook has failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_installed = False
_error: Exception | None = None


@contextmanager
def recorded() -> Iterator[None]:
    """Keeps an error for `require`, and raises it."""
    global _installed, _error
    try:
        yield
    except Exception as error:
        _error = error
        raise
    _installed = True


def require() -> None:
    """Raises RuntimeError with the reason if a part of the adapter is missing in this process."""
    from sglang.srt.plugins.hook_registry import HookRegistry

    from sglang_flagos import hooks, releases

    if _error is not None:
        raise RuntimeError(
            f"flagos cannot serve SGLang: its plugin failed ({type(_error).__name__}: {_error})"
        ) from _error
    if not _installed:
        raise RuntimeError(
            "flagos cannot serve SGLang: its plugin was not loaded; SGLANG_PLUGINS must name `flagos`, or be unset"
        )
    absent = sorted(set(hooks.of(releases.installed())) - HookRegistry._patched)
    if absent:
        raise RuntimeError(
            f"flagos cannot serve SGLang: no hook was applied to {', '.join(absent)} (SGLang's log has the error): "
            "this SGLang is not the one that sglang-flagos knows"
        )
