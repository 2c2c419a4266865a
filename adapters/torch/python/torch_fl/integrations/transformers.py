"""The Trainer of transformers on the device that accelerate was told to use.

accelerate takes its device from ACCELERATE_TORCH_DEVICE. TrainingArguments asks accelerate only after
CUDA, and wants to know of bfloat16 from the devices it has heard of; both are answered here, and only
where the variable names flagos.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from transformers import training_args

from torch_fl import flagos
from torch_fl.integrations.accelerate import is_chosen

_arguments = training_args.TrainingArguments
_native_devices = vars(_arguments)["_setup_devices"]
_native_bf16 = training_args.is_torch_bf16_gpu_available


def _setup_devices(self: Any) -> torch.device:
    device: torch.device = _native_devices.__get__(self)
    if self.use_cpu or not is_chosen():
        return device
    chosen: torch.device = self.distributed_state.device
    flagos.set_device(chosen)
    self._n_gpu = 1  # with more the Trainer would wrap the model in DataParallel over CUDA devices
    return chosen


def _is_bf16_available() -> bool:
    return flagos.is_bf16_supported() if is_chosen() else bool(_native_bf16())


def register() -> None:
    """Replace both properties."""
    replacement = cached_property(_setup_devices)
    replacement.__set_name__(_arguments, "_setup_devices")
    setattr(_arguments, "_setup_devices", replacement)  # noqa: B010
    setattr(training_args, "is_torch_bf16_gpu_available", _is_bf16_available)  # noqa: B010
