"""vLLM's sleep mode over the core's allocator, on every vendor alike.

Asleep, the storages of weights and caches have no memory, which the allocator gives back to the device. Awake, they
have memory again, at other addresses: so a captured graph does not outlive a sleep, and `vllm_flagos.rules` refuses
both together. Views share their storage, and need nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import torch
from torch import Tensor, nn
from vllm.device_allocator.sleep_mode_backend import SleepModeBackend

TAGS = ("weights", "kv_cache")
BACKEND = "cumem"  # vLLM's default name, under which flagos has its own


class Sleep(SleepModeBackend):
    """The memory of one worker's models and caches."""

    def __init__(self, models: Iterable[nn.Module], caches: Any) -> None:
        super().__init__()
        self._models, self._caches = tuple(models), caches
        # Of each tag what sleeps: a storage, its bytes, and its values on the CPU if they are kept.
        self._asleep: dict[str, list[tuple[torch.UntypedStorage, int, Tensor | None]]] = {}

    def suspend(self, level: int = 1) -> None:
        """Frees the caches and the weights, whose values are kept at level 1; what has no values to load is kept.

        Raises ValueError for another level than 1 and 2.
        """
        if level not in (1, 2):
            raise ValueError(f"sleep level {level}: write 1 (weights are kept) or 2 (they are not)")
        loaded = _storages(p for model in self._models for p in model.parameters())
        weights, caches = self._present()
        self._free("weights", weights, weights.keys() - (loaded if level == 2 else {}))
        self._free("kv_cache", caches, set())

    def discard(self, tags: tuple[str, ...]) -> None:
        """Frees what the tags have, and keeps no value of it; vLLM 0.33 asks for the caches alone."""
        for tag, present in zip(TAGS, self._present(), strict=True):
            if tag in tags:
                self._free(tag, present, set())

    def resume(self, tags: list[str] | None = None) -> None:
        """Gives memory to the tags (all, if none is named): kept values are there again, others are zeros.

        Where memory does not suffice, torch.OutOfMemoryError; a later call goes on from there.
        """
        self._state = "RESUMING"
        for tag in self._asleep.keys() & set(TAGS if tags is None else tags):
            asleep = self._asleep[tag]
            while asleep:
                storage, size, values = asleep[-1]
                storage.resize_(size)
                bytes_of = _bytes(storage)
                bytes_of.zero_() if values is None else bytes_of.copy_(values)
                asleep.pop()
            del self._asleep[tag]
        torch.accelerator.synchronize()
        self._state = "SUSPENDED" if self._asleep else "RUNNING"

    def require(self, *tags: str) -> None:
        """Raises RuntimeError if one of the tags is asleep: computing with it would read no memory."""
        asleep = sorted(self._asleep.keys() & set(tags))
        if asleep:
            raise RuntimeError(
                f"{' and '.join(asleep)} are asleep: call wake_up(tags={asleep}) before"
            )

    def sizes(self) -> dict[str, int]:
        """The bytes of the device that each tag has: none while it is asleep."""
        of_tags = zip(TAGS, self._present(), strict=True)
        return {tag: sum(one.nbytes() for one in found.values()) for tag, found in of_tags}

    def _free(
        self, tag: str, present: dict[int, torch.UntypedStorage], kept: AbstractSet[int]
    ) -> None:
        if tag in self._asleep:
            return
        self._state = "SUSPENDED"
        torch.accelerator.synchronize()
        self._asleep[tag] = [_freed(one, key in kept) for key, one in present.items()]
        torch.accelerator.empty_cache()

    def _present(self) -> tuple[dict[int, torch.UntypedStorage], dict[int, torch.UntypedStorage]]:
        """The storages of weights and of caches that have memory."""
        weights = _storages(x for model in self._models for x in _tensors_of(model))
        caches = _storages(_flat(self._caches))
        # A cache that layers refer to is no weight.
        return {key: one for key, one in weights.items() if key not in caches}, caches

    @classmethod
    def preserves_communicators(cls) -> bool:
        """True: they are outside of these storages."""
        return True


def _freed(
    storage: torch.UntypedStorage, keep: bool
) -> tuple[torch.UntypedStorage, int, Tensor | None]:
    size = storage.nbytes()
    values = _bytes(storage).cpu() if keep else None
    storage.resize_(0)
    return storage, size, values


def _bytes(storage: torch.UntypedStorage) -> Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _storages(tensors: Iterable[Tensor]) -> dict[int, torch.UntypedStorage]:
    """The storages on the device that have memory, each once."""
    found = {}
    for tensor in tensors:
        if tensor.device.type == "flagos":
            storage = tensor.untyped_storage()
            if storage.nbytes():
                found[storage._cdata] = storage
    return found


def _tensors_of(model: nn.Module) -> Iterator[Tensor]:
    """Parameters, buffers, and what modules keep as plain attributes: scales, tables, adapters."""
    for module in model.modules():
        yield from _flat(vars(module))


def _flat(value: Any, depth: int = 4) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for one in value:
            yield from _flat(one, depth - 1)
    elif depth and isinstance(value, dict):
        for one in value.values():
            yield from _flat(one, depth - 1)
