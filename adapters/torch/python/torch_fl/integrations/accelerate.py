"""accelerate on the device that ACCELERATE_TORCH_DEVICE names, in one process and in several.

The variable is accelerate's own, and so is what it leaves out: its list of accelerators decides whether
ranks form a group, which device each of them takes and whether float16 is allowed, and on any other
device every rank trains by itself. Here flagos is in that list. Ranks take the devices that
torch_fl.distributed gives them and the backend `flagos`.
"""

from __future__ import annotations

import functools
import inspect
import os
from typing import Any

import torch
from accelerate import accelerator as accelerator_module
from accelerate import state as state_module
from accelerate.utils import DistributedType, parse_choice_from_env

from flagos import UnsupportedError
from torch_fl import flagos

_DEVICE = "flagos"
_CHOICE = "ACCELERATE_TORCH_DEVICE"

_PartialState = state_module.PartialState
_Accelerator = accelerator_module.Accelerator
_prepare_backend = _PartialState._prepare_backend
_set_device = _PartialState.set_device
_default_device = _PartialState.default_device
_wait_for_everyone = _PartialState.wait_for_everyone
_init = _Accelerator.__init__
_signature = inspect.signature(_init)


def is_chosen() -> bool:
    """Whether accelerate was told to use the device."""
    return torch.device(os.environ.get(_CHOICE, "cpu")).type == _DEVICE


def _backend(
    self: Any, cpu: bool = False, sagemaker_dp: bool = False, backend: str | None = None
) -> tuple[str | None, Any]:
    if not cpu and is_chosen() and state_module.parse_flag_from_env("ACCELERATE_USE_DEEPSPEED"):
        _require_deepspeeds_choice()
    if cpu or sagemaker_dp or not is_chosen() or int(os.environ.get("LOCAL_RANK", -1)) == -1:
        prepared: tuple[str | None, Any] = _prepare_backend(self, cpu, sagemaker_dp, backend)
        return prepared
    # DistributedDataParallel gets no device index, because ranks of one host may share a device.
    os.environ["ACCELERATE_BYPASS_DEVICE_MAP"] = "true"
    return backend or _DEVICE, DistributedType.MULTI_GPU


def _require_deepspeeds_choice() -> None:
    """Raises UnsupportedError where DeepSpeed would take another device than accelerate."""
    if os.environ.get("DS_ACCELERATOR") != _DEVICE:
        raise UnsupportedError(
            f"{_CHOICE}=flagos is set, and DS_ACCELERATOR is not flagos: DeepSpeed would take another device. Set "
            "DS_ACCELERATOR=flagos, too (it needs flagos-trainers: pip install 'flagos[trainers]')"
        )


def _device(self: Any) -> None:
    _set_device(self)
    if self.device.type != _DEVICE:
        return
    if self._cpu:  # the program's own choice takes precedence over the variable
        self.device = torch.device("cpu")
        return
    if self.device.index is None:
        # As in torch_fl.distributed: with fewer devices than ranks, several ranks share one.
        index = self.local_process_index % max(flagos.device_count(), 1)
        self.device = torch.device(_DEVICE, index)
    flagos.set_device(self.device)


def _default(self: Any) -> torch.device:
    """The execution device of an offloaded model, unless the caller gives one."""
    return torch.device(_DEVICE) if is_chosen() else _default_device.fget(self)


def _wait(self: Any) -> None:
    if self.device.type == _DEVICE and torch.distributed.is_initialized():
        torch.distributed.barrier()  # accelerate would pass the rank as the index of a device
    else:
        _wait_for_everyone(self)


@functools.wraps(_init)
def _initialize(self: Any, *args: Any, **kwargs: Any) -> None:
    given = _signature.bind(self, *args, **kwargs)
    precision = given.arguments.get("mixed_precision")
    precision = str(precision or parse_choice_from_env("ACCELERATE_MIXED_PRECISION", "no"))
    cpu = given.arguments.get("cpu") or state_module.parse_flag_from_env("ACCELERATE_USE_CPU")
    if precision != "fp16" or cpu or not is_chosen():
        _init(self, *args, **kwargs)
        return
    # Its list of devices for float16 is inside of the function: set up without, then with it.
    shared = state_module.AcceleratorState._shared_state
    if shared.get("_mixed_precision") == precision:
        shared["_mixed_precision"] = "no"
    given.arguments["mixed_precision"] = "no"
    try:
        _init(*given.args, **given.kwargs)
        if self.distributed_type == DistributedType.DEEPSPEED:
            return  # it scales losses itself
        if self.distributed_type not in (DistributedType.NO, DistributedType.MULTI_GPU):
            raise UnsupportedError(
                f"accelerate's {self.distributed_type} with fp16 is not there for flagos: use bf16, or "
                "DistributedDataParallel"
            )
        scaling = self.scaler_handler.to_kwargs() if self.scaler_handler is not None else {}
        self.scaler = torch.amp.GradScaler(_DEVICE, **scaling)
        self.native_amp = True
    finally:
        if "_mixed_precision" in shared:
            shared["_mixed_precision"] = precision


def register() -> None:
    """Put flagos into accelerate's lists. Other devices are served as before."""
    setattr(_PartialState, "_prepare_backend", _backend)  # noqa: B010
    setattr(_PartialState, "set_device", _device)  # noqa: B010
    setattr(_PartialState, "default_device", property(_default))  # noqa: B010
    setattr(_PartialState, "wait_for_everyone", _wait)  # noqa: B010
    setattr(_Accelerator, "__init__", _initialize)  # noqa: B010
