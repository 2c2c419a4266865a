"""Shares tensors of the device between processes: torch.multiprocessing and `share_memory_()`.

How memory is shared is the native device's affair. Where host code computes on it, it is the memory of the
twin, a CPU storage: torch moves that to shared memory and sends it as it sends any, and the flagos storage
follows. A device type of torch's own sends handles of its memory. Memory of the core is sent by a key where the vendor
shares it. Elsewhere a message has a copy of the bytes, which goes to the device of the process that takes it.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from multiprocessing import reduction, util
from typing import Any, NamedTuple, Protocol

import torch
from torch.multiprocessing import reductions

from flagos import UnsupportedError, _core
from torch_fl import flagos
from torch_fl.native import native

DEVICE = "flagos"

Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


class Sharing(Protocol):
    """The way in which storages are sent to other processes."""

    def share(self, storage: torch.UntypedStorage) -> None:
        """Move the bytes to memory that every process to which the storage is sent will share."""

    def is_shared(self, storage: torch.UntypedStorage) -> bool:
        """Whether the bytes are in such memory already."""

    def reduce(self, storage: torch.UntypedStorage) -> Reduced:
        """The function that rebuilds the storage in another process, and its arguments."""


class _ByMemory:
    def share(self, storage: torch.UntypedStorage) -> None:
        # Queued copies write to the old memory, so they must finish first.
        flagos.synchronize(storage.device)
        _twin(storage).share_memory_()
        torch.ops.flagos.follow_twin(storage, shared=True)

    def is_shared(self, storage: torch.UntypedStorage) -> bool:
        return bool(_twin(storage).is_shared())

    def reduce(self, storage: torch.UntypedStorage) -> Reduced:
        if storage.nbytes() != 0:  # torch sends an empty storage by creating another
            self.share(storage)
        twin, index = _twin(storage), storage.device.index
        _remember(twin, index, storage)
        return _rebuild_from_twin, (twin, index)


def _twin(storage: torch.UntypedStorage) -> torch.UntypedStorage:
    native: torch.Tensor = torch.ops.flagos.native_bytes(storage)
    return native.untyped_storage()


def _rebuild_from_twin(twin: torch.UntypedStorage, index: int) -> torch.UntypedStorage:
    return _rebuild(_bytes_of(twin), index)


def _rebuild(native: torch.Tensor, index: int) -> torch.UntypedStorage:
    """The flagos storage over the bytes of `native`."""
    flagos.init()  # raises in a forked child
    # A storage that was sent twice, or comes back, is one object here too, so that tied parameters stay tied.
    twin = native.untyped_storage()
    known: torch.UntypedStorage | None
    known = reductions.storage_from_cache(torch.UntypedStorage, _key(twin, index))
    if known is not None:
        return known
    adopted: torch.Tensor = torch.ops.flagos.adopt_native(native, index)
    storage = adopted.untyped_storage()
    _remember(twin, index, storage)
    return storage


def _key(twin: torch.UntypedStorage, index: int) -> tuple[str, int, int]:
    # The storage keeps its twin alive, so that no other twin gets its address meanwhile.
    return DEVICE, index, twin._cdata


def _remember(twin: torch.UntypedStorage, index: int, storage: torch.UntypedStorage) -> None:
    reductions.shared_cache[_key(twin, index)] = reductions.StorageWeakRef(storage)


class _ByHandle:
    """torch sends tensors of its own device as handles of their memory, and so sends the twin."""

    def share(self, storage: torch.UntypedStorage) -> None:
        """Nothing to do: device memory is shared where it is."""

    def is_shared(self, storage: torch.UntypedStorage) -> bool:
        return True

    def reduce(self, storage: torch.UntypedStorage) -> Reduced:
        return _rebuild, (torch.ops.flagos.native_bytes(storage), storage.device.index)


class _Message(NamedTuple):
    """The state of a sent storage that both processes share.

    `in_use` is 1 from the sending on, until the storage that was made of the message is gone. `taker` is the process
    that took the message; one that has ended uses nothing.
    """

    in_use: torch.Tensor
    taker: torch.Tensor

    def is_over(self) -> bool:
        taker = int(self.taker.item())
        return self.in_use.item() == 0 or (taker != 0 and not _is_alive(taker))


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Sent:
    """Storages that other processes may use. A message that nobody takes keeps its storage."""

    _SLOTS = 1024

    def __init__(self) -> None:
        self._free: list[_Message] = []
        self._held: list[tuple[_Message, torch.UntypedStorage]] = []

    def hold(self, storage: torch.UntypedStorage) -> _Message:
        """Keeps the storage until the message is over."""
        self.collect()
        if not self._free:
            in_use = torch.zeros(self._SLOTS, dtype=torch.uint8).share_memory_()
            takers = torch.zeros(self._SLOTS, dtype=torch.int64).share_memory_()
            self._free.extend(map(_Message, in_use.split(1), takers.split(1)))
        message = self._free.pop()
        message.taker.fill_(0)
        message.in_use.fill_(1)
        self._held.append((message, storage))
        return message

    def collect(self) -> None:
        """Let go of storages that no other process uses any more."""
        held, self._held = self._held, []
        for message, storage in held:
            if message.is_over():
                self._free.append(message)
            else:
                self._held.append((message, storage))

    def find(self, message: _Message) -> torch.UntypedStorage | None:
        """The storage of a message that comes back to the process that sent it."""
        for held, storage in self._held:
            if held.in_use.data_ptr() == message.in_use.data_ptr():
                return storage
        return None


_sent = _Sent()


class _ByKey:
    """The vendor gives a key of the memory, by which other processes use it where it is."""

    def share(self, storage: torch.UntypedStorage) -> None:
        """Nothing to do: device memory is shared where it is."""

    def is_shared(self, storage: torch.UntypedStorage) -> bool:
        return True

    def reduce(self, storage: torch.UntypedStorage) -> Reduced:
        if storage.nbytes() == 0:
            return _rebuild_from_copy, (b"", storage.device.index)
        # The other process has streams of its own.
        flagos.synchronize(storage.device)
        try:
            key, offset, whole = torch.ops.flagos.memory_export(storage)
        except NotImplementedError:  # memory of another process, or of another library
            return _WAYS["copy"].reduce(storage)
        place = (key, storage.device.index, offset, whole, storage.nbytes())
        return _rebuild_from_key, (os.getpid(), place, tuple(_sent.hold(storage)))


def _rebuild_from_key(
    sender: int,
    place: tuple[str, int, int, int, int],
    tensors: tuple[torch.Tensor, torch.Tensor],
) -> torch.UntypedStorage:
    flagos.init()  # raises in a forked child
    message = _Message(*tensors)
    message.taker.fill_(os.getpid())
    known = reductions.storage_from_cache(torch.UntypedStorage, (DEVICE, *place))
    if known is None and sender == os.getpid():
        known = _sent.find(message)
    if known is not None:
        message.in_use.fill_(0)
        found: torch.UntypedStorage = known
        return found
    _close_at_the_end()
    imported: torch.Tensor = torch.ops.flagos.memory_import(*place, message.in_use)
    storage = imported.untyped_storage()
    reductions.shared_cache[(DEVICE, *place)] = reductions.StorageWeakRef(storage)
    return storage


@cache
def _close_at_the_end() -> None:
    """Have what is still imported closed when the process ends, after the threads of queues have sent theirs."""
    util.Finalize(None, _core.close_shared_memory, exitpriority=-100)


class _ByCopy:
    # Bytes rather than a CPU storage in shared memory: nothing would keep that alive until it is taken.

    def share(self, storage: torch.UntypedStorage) -> None:
        raise UnsupportedError(
            f"processes cannot share memory of vendor {native().vendor!r}{_why_not()}: send the tensor, which makes a "
            "copy in the process that takes it, and send results back; or share a CPU tensor, x.cpu().share_memory_()"
        )

    def is_shared(self, storage: torch.UntypedStorage) -> bool:
        return False

    def reduce(self, storage: torch.UntypedStorage) -> Reduced:
        # A queue sends on a thread of its own, which does not follow the stream of the one that computed.
        flagos.synchronize(storage.device)
        host = _bytes_of(storage).cpu()
        content = bytes((ctypes.c_char * host.numel()).from_address(host.data_ptr()))
        return _rebuild_from_copy, (content, storage.device.index)


def _bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)


def _rebuild_from_copy(content: bytes, index: int) -> torch.UntypedStorage:
    flagos.init()  # raises in a forked child
    host = torch.UntypedStorage.from_buffer(content, dtype=torch.uint8)
    return _bytes_of(host).to(torch.device(DEVICE, index)).untyped_storage()


# The functions that messages name: what unpickles some functions alone has to know them.
REBUILDERS = (_rebuild, _rebuild_from_copy, _rebuild_from_key, _rebuild_from_twin)
_WAYS: dict[str, Sharing] = {"memory": _ByMemory(), "handle": _ByHandle(), "copy": _ByCopy()}
_BY_KEY = _ByKey()


def _sharing() -> Sharing:
    way = native().shared_by
    return _BY_KEY if way == "copy" and not _why_not() else _WAYS[way]


@cache
def _why_not() -> str:
    """The reason why the vendor gives no keys of its memory; "" where it does."""
    try:
        torch.ops.flagos.memory_sharing()
    except NotImplementedError as error:
        return f" ({str(error).splitlines()[0]})"
    return ""


_reduce_native = reductions.reduce_storage
_share_native = torch.UntypedStorage.share_memory_
_is_shared_native = torch.UntypedStorage.is_shared


def _reduce_storage(storage: torch.UntypedStorage) -> Any:
    if storage.device.type == DEVICE:
        return _sharing().reduce(storage)
    return _reduce_native(storage)


# torch assumes that storages of out-of-tree devices need not be moved to be shared.


def _share_memory_(
    self: torch.UntypedStorage, *args: object, **kwargs: object
) -> torch.UntypedStorage:
    if self.device.type == DEVICE:
        _sharing().share(self)
    else:
        _share_native(self, *args, **kwargs)
    return self


def _is_shared(self: torch.UntypedStorage) -> bool:
    if self.device.type == DEVICE:
        return _sharing().is_shared(self)
    return _is_shared_native(self)


def install() -> None:
    """Register the functions with torch. Idempotent."""
    reduction.register(torch.UntypedStorage, _reduce_storage)
    _share_memory_.__doc__ = _share_native.__doc__
    _is_shared.__doc__ = _is_shared_native.__doc__
    setattr(torch.UntypedStorage, "share_memory_", _share_memory_)  # noqa: B010
    setattr(torch.UntypedStorage, "is_shared", _is_shared)  # noqa: B010
