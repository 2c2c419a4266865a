"""Lightning on the device: `Trainer(accelerator="flagos")` and `Fabric(accelerator="flagos")`.

Accelerators of others have a registry there. What Lightning decides by the names of its own ones is
decided here for this one: the strategy of a single device, the device of mixed precision, and that
DistributedDataParallel is not to be given an index. `accelerator="auto"` is left to Lightning, which
takes CUDA or the CPU.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import torch

from torch_fl import flagos

NAME = "flagos"

# Lightning is installed as one package, `lightning`, or as two, `lightning_fabric` and `pytorch_lightning`.
_PARTS = {
    "lightning.fabric": "connector",
    "lightning_fabric": "connector",
    "lightning.pytorch": "trainer.connectors.accelerator_connector",
    "pytorch_lightning": "trainer.connectors.accelerator_connector",
}
_MIXED = ("16-mixed", "bf16-mixed")


def register() -> None:
    """Complete those packages that are loaded. Idempotent."""
    for package, module in _PARTS.items():
        connector = sys.modules.get(f"{package}.{module}")
        if connector is not None:
            _complete(package, connector)


def _complete(package: str, connector: Any) -> None:
    accelerators = importlib.import_module(f"{package}.accelerators")
    # The registry has one name in Fabric and another in the Trainer.
    registry = getattr(accelerators, "ACCELERATOR_REGISTRY", None)
    registry = accelerators.AcceleratorRegistry if registry is None else registry
    if NAME in registry:
        return
    accelerator = _accelerator(accelerators.Accelerator)
    choices = (
        connector._AcceleratorConnector
        if hasattr(connector, "_AcceleratorConnector")
        else connector._Connector
    )
    choices._choose_strategy = _strategy(choices._choose_strategy, connector, accelerator)
    choices._check_and_init_precision = _precision(
        choices._check_and_init_precision, connector, accelerator
    )
    strategy = importlib.import_module(f"{package}.strategies").DDPStrategy
    for name in ("determine_ddp_device_ids", "_determine_ddp_device_ids"):
        if hasattr(strategy, name):
            setattr(strategy, name, _device_ids(getattr(strategy, name)))
    registry.register(NAME, accelerator, description="the flagos device")


def _accelerator(base: type) -> type:
    """The accelerator, as a subclass of Lightning's own `Accelerator`."""

    class FlagosAccelerator(base):
        """The flagos device, on any chip."""

        def setup_device(self, device: torch.device) -> None:
            if device.type != NAME:
                raise ValueError(f"the accelerator flagos has flagos devices, not {device}")
            flagos.set_device(device)

        def teardown(self) -> None:
            flagos.empty_cache()

        def get_device_stats(self, device: Any) -> dict[str, Any]:
            return dict(flagos.memory_stats(device))

        @staticmethod
        def parse_devices(devices: int | str | list[int]) -> list[int]:
            return _indices(devices)

        @staticmethod
        def get_parallel_devices(devices: list[int]) -> list[torch.device]:
            return [torch.device(NAME, index) for index in devices]

        @staticmethod
        def auto_device_count() -> int:
            return int(flagos.device_count())

        @staticmethod
        def is_available() -> bool:
            return bool(flagos.is_available())

        @staticmethod
        def name() -> str:
            return NAME

    return FlagosAccelerator


def _indices(devices: int | str | list[int]) -> list[int]:
    """The requested devices, given as a number (-1 for all) or a list. Raises ValueError for a missing device."""
    count = flagos.device_count()
    if isinstance(devices, str):
        text = devices.strip()
        asked = (
            [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
        )
    else:
        asked = devices
    indices = (
        list(asked)
        if isinstance(asked, list | tuple)
        else list(range(count if asked == -1 else asked))
    )
    absent = [index for index in indices if not 0 <= index < count]
    if absent or not indices:
        raise ValueError(
            f"devices={devices!r}: this machine has {count} flagos device{'s' * (count != 1)}"
            " (FLAGOS_HOST_DEVICES gives the host more)"
        )
    return indices


def _is_ours(choices: Any, accelerator: type) -> bool:
    return choices._accelerator_flag == NAME or isinstance(choices._accelerator_flag, accelerator)


def _strategy(theirs: Any, connector: Any, accelerator: type) -> Any:
    @functools.wraps(theirs)
    def choose(self: Any) -> Any:
        one = self._num_nodes_flag <= 1 and len(self._parallel_devices) == 1
        if one and _is_ours(self, accelerator):
            return connector.SingleDeviceStrategy(device=self._parallel_devices[0])
        return theirs(self)

    return choose


def _precision(theirs: Any, connector: Any, accelerator: type) -> Any:
    @functools.wraps(theirs)
    def choose(self: Any) -> Any:
        # The Trainer's names, or Fabric's.
        asked = getattr(self, "_precision_flag", None) or getattr(self, "_precision_input", None)
        given = getattr(self, "_precision_plugin_flag", None) or getattr(
            self, "_precision_instance", None
        )
        own = isinstance(
            self.strategy,
            connector.DeepSpeedStrategy | connector.FSDPStrategy | connector.ModelParallelStrategy,
        )
        if given is None and not own and asked in _MIXED and _is_ours(self, accelerator):
            return connector.MixedPrecision(asked, NAME)
        return theirs(self)

    return choose


def _device_ids(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def ids(self: Any) -> Any:
        return None if self.root_device.type == NAME else theirs(self)

    return ids
