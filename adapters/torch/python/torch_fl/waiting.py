"""Waits with registering until a program asks for the device, where torch has the same device under another name.

A registered out-of-tree device is what torch takes for the accelerator: integers name its devices, and
`torch.Stream()` is a stream of it. Beside a device of torch's own that would change programs which never mention
flagos, so under a vendor whose device torch knows already the device is registered when it is first asked for, by

- `import torch_fl`, or any name of `torch.flagos` but whether and how many devices there are,
- a device string: `device="flagos"`, `x.to("flagos:1")`, `torch.device("flagos")`, a checkpoint that
  was saved on the device, `safetensors.torch.load_file(f, device="flagos")`,
- the backend `flagos` of torch.distributed,
- `FLAGOS_ACCELERATOR=flagos`, LightX2V's `PLATFORM=flagos`, DeepSpeed's `DS_ACCELERATOR=flagos` or
  `FLAGOS_MEGATRON=1`, at `import torch`,
- `ACCELERATE_TORCH_DEVICE=flagos`, at the import of accelerate or of transformers' `TrainingArguments`: these take a
  device of their own before they make one of that string.

From then on the device is torch's accelerator, as it is from the start under other vendors. Of this package no
module may be imported before that asks for the device.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import sys
import types
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from flagos import _core
from flagos.on_import import when_imported
from torch_fl.integrations import safetensors
from torch_fl.native.description import built_into_torch, description, is_known_to_torch

_DEVICE = "flagos"
_MODULE = f"torch.{_DEVICE}"
_ASKING = {
    "FLAGOS_ACCELERATOR": _DEVICE,
    "PLATFORM": _DEVICE,
    "DS_ACCELERATOR": _DEVICE,
    "FLAGOS_MEGATRON": "1",
}
_CHOICE_OF_ACCELERATE = "ACCELERATE_TORCH_DEVICE"
_TAKE_ACCELERATES_CHOICE = ("accelerate", "transformers.training_args")
_AFTER_TORCHS_OWN = 100  # torch's packages have priorities from 10 to 26


def is_requested() -> bool:
    """Whether to register the device at once: the environment says so, or the device has no other name in torch."""
    if any(os.environ.get(name) == value for name, value in _ASKING.items()):
        return True
    return not is_known_to_torch()


def install(ask: Callable[[], None], device_module: Callable[[], types.ModuleType]) -> None:
    """Wait for the first use of the device. Registers nothing with torch's dispatcher.

    `ask` registers the device; afterwards `device_module` returns the module `torch.flagos`. Raises
    RuntimeError if this build of torch reads device strings in a way that cannot be noticed.
    """
    from torch_fl import _C

    _C.watch_device_names(ask)
    module = _Waiting(ask, device_module)
    setattr(torch, _DEVICE, module)
    sys.modules[_MODULE] = module
    sys.meta_path.insert(0, _Finder(ask))
    deserialize = partial(_deserialize, ask)
    torch.serialization.register_package(_AFTER_TORCHS_OWN, _tag, deserialize)
    when_imported("torch.distributed.distributed_c10d", _offer_backend)
    # Its parser reads device strings itself, so torch would not see the first mention of the device.
    when_imported("safetensors", safetensors.register)
    for library in _TAKE_ACCELERATES_CHOICE:
        when_imported(library, partial(_ask_if_chosen, ask))


def uninstall() -> None:
    """Remove the stand-ins after the device was registered. Idempotent."""
    from torch_fl import _C

    _C.watch_device_names(None)
    if isinstance(getattr(torch, _DEVICE, None), _Waiting):
        delattr(torch, _DEVICE)
        sys.modules.pop(_MODULE, None)
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]


class _Waiting(types.ModuleType):
    """Stands in for `torch.flagos`. Counting devices does not register the device, any other use does."""

    def __init__(
        self, ask: Callable[[], None], device_module: Callable[[], types.ModuleType]
    ) -> None:
        super().__init__(_MODULE, __doc__)
        self._ask, self._device_module = ask, device_module
        self.__path__ = []  # it has submodules, which `_Finder` finds

    def is_available(self) -> bool:
        """True when at least one device can be used."""
        return self.device_count() > 0

    def device_count(self) -> int:
        """Number of devices; 0 when there is none, or none that this torch can reach."""
        device_type = description()["torch_device_type"] or ""
        return _core.device_count() if built_into_torch(device_type) else 0

    def is_initialized(self) -> bool:
        """False: once initialised, another module takes this one's place."""
        return False

    def __getattr__(self, name: str) -> Any:
        # Introspection (inspect, pickle, doctest) probes every module for dunder attributes.
        if name.startswith("__"):
            raise AttributeError(name)
        self._ask()
        return getattr(self._device_module(), name)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds `torch.flagos.amp` and other submodules by registering the device, which loads them."""

    def __init__(self, ask: Callable[[], None]) -> None:
        self._ask = ask

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of a module of the device; None for every other name."""
        if not fullname.startswith(f"{_MODULE}."):
            return None
        self._ask()
        if fullname not in sys.modules:
            return None
        return importlib.machinery.ModuleSpec(fullname, _Loaded(sys.modules[fullname]))


class _Loaded(importlib.abc.Loader):
    """Loads a module that is in `sys.modules` already."""

    def __init__(self, module: types.ModuleType) -> None:
        self._module = module
        self._spec = module.__spec__

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        """The module."""
        return self._module

    def exec_module(self, module: types.ModuleType) -> None:
        """Give the module its own spec back; there is nothing to execute."""
        module.__spec__ = self._spec


def _ask_if_chosen(ask: Callable[[], None]) -> None:
    if os.environ.get(_CHOICE_OF_ACCELERATE, "").partition(":")[0] == _DEVICE:
        ask()


def _tag(storage: Any) -> None:
    """No location tag: once the device is registered, torch tags its storages itself."""


def _deserialize(ask: Callable[[], None], storage: Any, location: str) -> Any:
    """Load a storage that was saved on the device, which registers the device."""
    if location.partition(":")[0] != _DEVICE:
        return None
    ask()
    return torch.serialization._deserialize("privateuse1", storage, location)


def _offer_backend() -> None:
    """Make torch.distributed know the backend by name."""
    import torch.distributed as dist

    if dist.is_available() and _DEVICE not in dist.Backend.backend_list:
        dist.Backend.register_backend(_DEVICE, _create, extended_api=True, devices=[_DEVICE, "cpu"])


def _create(*arguments: Any) -> Any:
    from torch_fl.distributed import registration

    return registration.create(*arguments)
