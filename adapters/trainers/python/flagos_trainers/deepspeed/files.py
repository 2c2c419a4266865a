"""DeepSpeed's asynchronous files (`aio_handle`), which read into tensors of the device, too."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor


@cache
def filling(handle: type) -> type:
    """An `aio_handle` of DeepSpeed whose reads fill tensors of a flagos device.

    DeepSpeed reads into memory of its own where a tensor is not the host's, and copies from there to CUDA and XPU. It
    leaves tensors of other devices as they were, and reports success.
    """

    class Handle(handle):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self._unfilled: list[tuple[Tensor, Tensor]] = []

        def pread(self, buffer: Tensor, *args: Any, **kwargs: Any) -> int:
            return self._read(super().pread, buffer, *args, **kwargs)

        def sync_pread(self, buffer: Tensor, *args: Any, **kwargs: Any) -> int:
            return self._read(super().sync_pread, buffer, *args, **kwargs)

        def async_pread(self, buffer: Tensor, *args: Any, **kwargs: Any) -> int:
            return self._read(super().async_pread, buffer, *args, **kwargs)

        def pwrite(self, *args: Any, **kwargs: Any) -> int:
            return self._fill(super().pwrite(*args, **kwargs))

        def sync_pwrite(self, *args: Any, **kwargs: Any) -> int:
            return self._fill(super().sync_pwrite(*args, **kwargs))

        def wait(self) -> int:
            return self._fill(super().wait())

        def _read(self, read: Callable[..., int], buffer: Tensor, *args: Any, **kwargs: Any) -> int:
            if buffer.device.type == "cpu":
                return self._fill(read(buffer, *args, **kwargs))
            # One dimension: DeepSpeed copies memory that has one into what it is given.
            host = torch.empty(buffer.numel(), dtype=buffer.dtype)
            done = read(host, *args, **kwargs)
            if done >= 0:
                self._unfilled.append((buffer, host))
            return self._fill(done)

        def _fill(self, done: int) -> int:
            """Fills what was read. A call that waits, waits for all before it, too, and returns their number."""
            if done > 0:
                for buffer, host in self._unfilled:
                    buffer.copy_(host.view(buffer.shape))
                self._unfilled.clear()
            return done

    return Handle
