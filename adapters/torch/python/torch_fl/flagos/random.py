"""Random numbers. A seed gives the same numbers as on the native device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import torch

from torch_fl.flagos._device import current_device, device_count
from torch_fl.flagos._lifecycle import _lazy_init, is_initialized
from torch_fl.flagos._utils import Device, _get_device_index
from torch_fl.native import native


@cache
def default_generators() -> tuple[torch.Generator, ...]:
    """The default generator of each device, by index."""
    if native().keeps_seeds:  # its generators are made when it is initialised
        _lazy_init()
    return tuple(torch.ops.flagos.default_generator(index) for index in range(device_count()))


def _generator(device: Device) -> torch.Generator:
    index = _get_device_index(device, optional=True)
    generators = default_generators()
    if not 0 <= index < len(generators):
        raise ValueError(
            f"no device flagos:{index}; this machine has {len(generators)} flagos device(s)"
        )
    return generators[index]


def get_rng_state(device: Device = "flagos") -> torch.Tensor:
    """State of the default generator of `device`, as a byte tensor on the CPU."""
    return _generator(device).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """States of the default generators of all devices, by index."""
    return [generator.get_state() for generator in default_generators()]


def set_rng_state(new_state: torch.Tensor, device: Device = "flagos") -> None:
    """Put the default generator of `device` into a state `get_rng_state` returned."""
    _generator(device).set_state(new_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Put the default generators of all devices into the given states, by index."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the default generator of the current device."""
    if not native().keeps_seeds:
        _lazy_init()
    native().seed(int(seed))
    if _has_generators():
        _generator("flagos").manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed the default generators of all devices. `torch.manual_seed` calls this."""
    native().seed_all(int(seed))
    if _has_generators():
        for generator in default_generators():
            generator.manual_seed(int(seed))


def _has_generators() -> bool:
    """Whether flagos has generators of its own beside torch's, which hold the numbers: what was drawn before a seed is
    out of date, such as the state of cuDNN's dropout. They are made when the device is initialised."""
    return native().keeps_seeds and is_initialized()


def seed() -> None:
    """Seed the default generator of the current device from the system's entropy."""
    _generator(current_device()).seed()


def seed_all() -> None:
    """Seed the default generators of all devices with one number from the system's entropy."""
    generators = default_generators()
    if generators:
        manual_seed_all(generators[0].seed())


def initial_seed() -> int:
    """The seed the default generator of the current device was last given."""
    return _generator(current_device()).initial_seed()
