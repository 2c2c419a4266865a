"""How flagos becomes the platform of Megatron-LM-FL: ``FLAGOS_MEGATRON=1``.

Its list of platforms has names, and no entry point. torch_fl calls `install` at the end of torch's import, before any
module of Megatron is imported: most of them say `cuda` beside the platform (`retarget`), and so do TransformerEngine's.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn

from flagos.on_import import when_imported
from flagos_trainers import device, releases
from flagos_trainers.megatron import retarget

VARIABLE = "FLAGOS_MEGATRON"
_MANAGER = "megatron.plugin.platform.platform_manager"


def install() -> None:
    """Has the modules retargeted, and Megatron's platform completed, as they are imported. Idempotent.

    Raises RuntimeError where a module that says `cuda` is imported already.
    """
    early = retarget.unchanged()
    if early:
        raise RuntimeError(
            f"{early[0]} was imported before torch, so its `cuda` cannot be read as flagos: import torch first"
        )
    retarget.install()
    when_imported(_MANAGER, _complete)


class _Refusal:
    """The platform where flagos cannot serve: Megatron's modules may have copies of `get_platform` already."""

    def __init__(self, reason: str) -> None:
        self._reason = reason

    def __getattr__(self, name: str) -> NoReturn:
        raise RuntimeError(
            f"flagos cannot serve Megatron-LM-FL: {self._reason}. To run it on another device, unset {VARIABLE}"
        )


def _complete() -> None:
    manager: Any = sys.modules[_MANAGER]
    reason = problem()
    if reason is None:
        try:
            from flagos_trainers.megatron.platform import PlatformFlagos

            platform = PlatformFlagos()
        except Exception as error:
            # An abstract name that a new release has, among others.
            reason = f"its platform cannot be made ({type(error).__name__}: {error})"
        else:
            manager.PLATFORMS["flagos"] = platform
            manager.set_platform(platform)
            return
    manager.set_platform(_Refusal(reason))


def problem() -> str | None:
    """Why flagos cannot serve Megatron-LM-FL in this process, with the remedy; None if it can."""
    package = retarget.package(retarget.MEGATRON)
    number = None if package is None else retarget.version(package)
    if number is None:
        return "Megatron-LM-FL is not importable: put its checkout on PYTHONPATH"
    wrong = releases.wrong("Megatron Core", number, releases.MEGATRON)
    if wrong is not None:
        return f"{wrong}: take a checkout of Megatron-LM-FL with one of these"
    engine = retarget.package(retarget.TRANSFORMER_ENGINE)
    if engine is not None:
        wrong = releases.wrong(
            "TransformerEngine", str(retarget.version(engine)), releases.TRANSFORMER_ENGINE
        )
        if wrong is not None:
            return f"{wrong}: take TransformerEngine-FL with one of these, or none"
    return device.problem()
