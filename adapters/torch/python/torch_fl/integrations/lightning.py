"""Lightning on the device: `Trainer(accelerator="flagos")` and `Fabric(accelerator="flagos")`.

Accelerators of others have a registry there. What Lightning decides by the names of its own ones is
decided here for this one: the strategy of a single device, the device of mixed precision, and that
DistributedDataParallel is not to be given an index. `accelerator="auto"` and `"gpu"` are left to
Lightning, which takes CUDA or the CPU; where that leaves the device unused, Lightning says so. Where cuda means
flagos, so do `"auto"`, `"gpu"` and `"cuda"`.
"""

from __future__ import annotations

import functools
import importlib
import sys
from typing import Any

import torch
import torch.distributed as dist

from torch_fl import cuda_names, flagos
from torch_fl.cuda_names.arguments import convert

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
    accelerator = _accelerator(package)
    choices = (
        connector._AcceleratorConnector
        if hasattr(connector, "_AcceleratorConnector")
        else connector._Connector
    )
    choices._choose_strategy = _strategy(choices._choose_strategy, connector, accelerator)
    choices._check_and_init_precision = _precision(
        choices._check_and_init_precision, connector, accelerator
    )
    choices._choose_auto_accelerator = _auto(
        choices._choose_auto_accelerator, connector.rank_zero_warn
    )
    choices._choose_gpu_accelerator_backend = _gpu(choices._choose_gpu_accelerator_backend)
    convert(choices, "_check_config_and_set_final_flags", accelerator=_named)
    strategies = importlib.import_module(f"{package}.strategies")
    for strategy, name, wrapper in (
        (strategies.DDPStrategy, "determine_ddp_device_ids", _device_ids),
        (strategies.DDPStrategy, "setup_distributed", _on_a_group),
        (strategies.ModelParallelStrategy, "setup_distributed", _on_a_group),
    ):
        for method in (name, f"_{name}"):  # one of them, in Fabric or in the Trainer
            if hasattr(strategy, method):
                setattr(strategy, method, wrapper(getattr(strategy, method)))
    registry.register(NAME, accelerator, description="the flagos device")


@functools.cache
def _accelerator(package: str) -> type:
    """The accelerator, as a subclass of the package's own `Accelerator`."""
    base: Any = importlib.import_module(f"{package}.accelerators").Accelerator

    class FlagosAccelerator(base):
        """The flagos device, on any chip."""

        # Strategies that spawn their processes send it to them, and a local class has no name to find it by.
        def __reduce__(self) -> tuple[Any, ...]:
            return _new_accelerator, (package,), self.__dict__ or None

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


def _new_accelerator(package: str) -> Any:
    return _accelerator(package)()


def _indices(devices: int | str | list[int]) -> list[int]:
    """The requested devices, given as a number (-1 for all) or a list. Raises ValueError for a missing device."""
    count = flagos.device_count()
    if isinstance(devices, str):
        text = devices.strip()
        requested = (
            [int(part) for part in text.split(",") if part.strip()] if "," in text else int(text)
        )
    else:
        requested = devices
    indices = (
        list(requested)
        if isinstance(requested, list | tuple)
        else list(range(count if requested == -1 else requested))
    )
    absent = [index for index in indices if not 0 <= index < count]
    if absent or not indices:
        raise ValueError(
            f"devices={devices!r}: this machine has {count} flagos device{'s' * (count != 1)}"
            " (FLAGOS_HOST_DEVICES gives the host more)"
        )
    return indices


def _named(accelerator: Any) -> Any:
    return NAME if accelerator == "cuda" and cuda_names.is_aliased() else accelerator


def _auto(theirs: Any, warn: Any) -> Any:
    @functools.wraps(theirs)
    def choose() -> Any:
        if cuda_names.is_aliased():
            return NAME
        chosen = theirs()
        if chosen == "cpu" and flagos.is_available():
            warn(
                f'accelerator="auto" takes the CPU, and leaves {flagos.device_count()} flagos device(s) unused:'
                ' write accelerator="flagos" for them, or accelerator="cpu" to keep the CPU without this warning'
            )
        return chosen

    return staticmethod(choose)


def _gpu(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def choose() -> Any:
        if cuda_names.is_aliased():
            return NAME
        try:
            return theirs()
        except Exception as error:
            if not flagos.is_available():
                raise
            # Lightning's own type: Fabric raises another than the Trainer.
            raise type(error)(
                f'{error} accelerator="gpu" is CUDA or MPS; for the {flagos.device_count()} flagos device(s)'
                ' write accelerator="flagos"'
            ) from error

    return staticmethod(choose)


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
        requested = getattr(self, "_precision_flag", None) or getattr(
            self, "_precision_input", None
        )
        given = getattr(self, "_precision_plugin_flag", None) or getattr(
            self, "_precision_instance", None
        )
        own = isinstance(
            self.strategy,
            connector.DeepSpeedStrategy | connector.FSDPStrategy | connector.ModelParallelStrategy,
        )
        if given is None and not own and requested in _MIXED and _is_ours(self, accelerator):
            return connector.MixedPrecision(requested, NAME)
        return theirs(self)

    return choose


def _device_ids(theirs: Any) -> Any:
    @functools.wraps(theirs)
    def ids(self: Any) -> Any:
        return None if self.root_device.type == NAME else theirs(self)

    return ids


def _on_a_group(theirs: Any) -> Any:
    """Lightning takes a process group that exists as it is, also one that does not know the device."""

    @functools.wraps(theirs)
    def setup(self: Any) -> Any:
        if self.root_device.type == NAME and dist.is_available() and dist.is_initialized():
            group: Any = dist.group.WORLD
            if torch.device(NAME) not in group._device_types:
                raise RuntimeError(
                    f"{type(self).__name__} on {self.root_device}: the process group that exists already has the"
                    f' backend "{dist.get_backend()}", which does not serve flagos. Call'
                    " torch.distributed.destroy_process_group() before this Trainer or Fabric, or make the group by"
                    ' torch.distributed.init_process_group("cpu:gloo,flagos:flagos")'
                )
        return theirs(self)

    return setup
