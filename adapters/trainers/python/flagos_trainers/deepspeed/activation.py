"""How flagos becomes DeepSpeed's accelerator: ``DS_ACCELERATOR=flagos``.

DeepSpeed has a closed list of accelerators, and no entry point. torch_fl calls `register` right after the import of
the module that has the list. Where flagos cannot serve, every question for the accelerator raises the reason:
DeepSpeed takes no other.
"""

from __future__ import annotations

import os
import sys
from importlib import metadata
from typing import Any, NoReturn

from flagos.on_import import when_imported
from flagos_trainers import device, releases

VARIABLE, VALUE = "DS_ACCELERATOR", "flagos"
_CHOICE_MODULE = "deepspeed.accelerator.real_accelerator"
_CONFIG_MODULE = "deepspeed.runtime.config"


def is_requested() -> bool:
    """Whether this process's DeepSpeed shall run on flagos."""
    return os.environ.get(VARIABLE) == VALUE


def register() -> None:
    """Completes the choice of an accelerator, which is imported, if flagos is asked for."""
    if not is_requested():
        return
    choice: Any = sys.modules[_CHOICE_MODULE]
    reason = problem()
    if reason is not None:
        _refuse(choice, reason)
        return
    try:
        from flagos_trainers.deepspeed.accelerator import FlagosAccelerator

        chosen = FlagosAccelerator()
    except Exception as error:
        # An abstract name that a new release has, among others.
        _refuse(choice, f"its accelerator cannot be made ({type(error).__name__}: {error})")
        return
    choice.SUPPORTED_ACCELERATOR_LIST.append(VALUE)
    choice.set_accelerator(chosen)
    when_imported(_CONFIG_MODULE, _judge_configurations)


def problem() -> str | None:
    """Why flagos cannot serve DeepSpeed in this process, with the remedy; None if it can."""
    try:
        installed = metadata.version("deepspeed")
    except metadata.PackageNotFoundError:
        return f"DeepSpeed is not installed: pip install deepspeed=={releases.DEEPSPEED['0.19']}"
    wrong = releases.wrong("DeepSpeed", installed, releases.DEEPSPEED)
    if wrong is not None:
        return f"{wrong}: pip install deepspeed=={releases.DEEPSPEED['0.19']}"
    return device.problem()


def _refuse(choice: Any, reason: str) -> None:
    def get_accelerator() -> NoReturn:
        raise RuntimeError(
            f"flagos cannot serve DeepSpeed: {reason}. To run it on another device, unset {VARIABLE}"
        )

    choice.get_accelerator = get_accelerator


def _judge_configurations() -> None:
    """Refuses configurations that need DeepSpeed's CUDA kernels where it has checked them itself."""
    from flagos_trainers.deepspeed import rules

    configuration: Any = sys.modules[_CONFIG_MODULE].DeepSpeedConfig
    check = configuration._do_sanity_check

    def checked(self: Any) -> None:
        check(self)
        rules.require(self._param_dict)

    configuration._do_sanity_check = checked
