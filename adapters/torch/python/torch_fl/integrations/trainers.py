"""Completions of trainers, which the wheel `flagos-trainers` contributes.

The wheel imports `torch_fl`, and `torch_fl` knows of it no more than a group of entry points, which is read where a
variable asks for a trainer.
"""

from __future__ import annotations

import os
from typing import Any

from flagos import _core
from flagos.adapters import contributions

GROUP = "torch_fl.completions"
WHEEL = "flagos-trainers"
DEEPSPEED, MEGATRON = "DS_ACCELERATOR", "FLAGOS_MEGATRON"


class MissingTrainersError(ImportError):
    """The wheel for trainers is not installed."""


def register() -> None:
    """Completes DeepSpeed's choice of an accelerator, which has been imported, where flagos is asked for."""
    if os.environ.get(DEEPSPEED) == "flagos":
        _load("deepspeed", f"{DEEPSPEED}=flagos")()


def complete_megatron_if_requested() -> None:
    """Lets Megatron-LM-FL run on flagos if the environment requests it. If that fails, so does `import torch`."""
    if _core.environment_flag(MEGATRON):
        _load("megatron", f"{MEGATRON}=1")()


def _load(name: str, requested_by: str) -> Any:
    for contribution in contributions(GROUP):
        if contribution.name == name:
            return contribution.load()
    raise MissingTrainersError(
        f"{requested_by} needs {WHEEL}, which is not installed: pip install 'flagos[trainers]'"
    )
