"""SGLang on flagos: ``SGLANG_PLATFORM=flagos python -m sglang.launch_server ...``.

SGLang finds this package through its entry points. Importing it imports neither torch nor SGLang.
"""

from __future__ import annotations

from sglang_flagos._version import __version__

__all__ = ["__version__", "general", "platform", "register_operators"]


def platform() -> str | None:
    """Entry point of ``sglang.srt.platforms``: the name of the platform's class, or None where it is not asked for.

    Where flagos is asked for and cannot serve, it names a class whose constructor raises the reason: SGLang swallows
    what this function raises unless ``SGLANG_PLATFORM`` names flagos.
    """
    from sglang_flagos import activation

    return activation.platform_class()


def general() -> None:
    """Entry point of ``sglang.srt.plugins``: completes SGLang in every process that flagos serves.

    SGLang swallows what it raises. The platform, which SGLang asks later, repeats it (`sglang_flagos.completeness`).
    """
    from sglang_flagos import activation

    if activation.platform_class() == activation.PLATFORM:
        from sglang_flagos import completeness, hooks

        with completeness.recorded():
            hooks.install()


def register_operators() -> None:
    """Registers the operators with the plan of this process, for ``flagos ops``. Imports torch, but not SGLang."""
    from sglang_flagos import operators  # noqa: F401  each is registered where it is declared
