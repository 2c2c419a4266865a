"""The double of DeepSpeed's code for the host: of its extensions it has the asynchronous files.

`long_deepspeed.py` compares their calls with DeepSpeed's sources, and runs the program of `test_files.py` with both.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from deepspeed.ops.op_builder.builder import OpBuilder


class aio_handle:
    """Reads and writes files when they are waited for. Reads reach tensors of the host alone. The name is DeepSpeed's.

    As in DeepSpeed, no call goes through a method that a subclass may have.
    """

    def __init__(
        self,
        block_size: int = 1 << 20,
        queue_depth: int = 128,
        single_submit: bool = False,
        overlap_events: bool = False,
        intra_op_parallelism: int = 1,
    ) -> None:
        self.__threads = intra_op_parallelism
        self.__pending: list[Callable[[], object]] = []

    def pread(
        self, buffer: Tensor, filename: str, validate: bool, async_: bool, file_offset: int = 0
    ) -> int:
        if not Path(filename).exists() or buffer.nbytes % self.__threads:
            return -1

        def read() -> None:
            content = bytearray(Path(filename).read_bytes()[file_offset:][: buffer.nbytes])
            if buffer.device.type == "cpu":
                buffer.copy_(torch.frombuffer(content, dtype=buffer.dtype))

        return self.__submit(read, async_)

    def pwrite(
        self, buffer: Tensor, filename: str, validate: bool, async_: bool, file_offset: int = 0
    ) -> int:
        if buffer.nbytes % self.__threads:
            return -1
        content = bytes(buffer.cpu().contiguous().view(torch.uint8).tolist())
        return self.__submit(lambda: Path(filename).write_bytes(content), async_)

    def sync_pread(self, buffer: Tensor, filename: str, file_offset: int = 0) -> int:
        return aio_handle.pread(self, buffer, filename, False, False, file_offset)

    def async_pread(self, buffer: Tensor, filename: str, file_offset: int = 0) -> int:
        return aio_handle.pread(self, buffer, filename, False, True, file_offset)

    def sync_pwrite(self, buffer: Tensor, filename: str, file_offset: int = 0) -> int:
        return aio_handle.pwrite(self, buffer, filename, False, False, file_offset)

    def async_pwrite(self, buffer: Tensor, filename: str, file_offset: int = 0) -> int:
        return aio_handle.pwrite(self, buffer, filename, False, True, file_offset)

    def wait(self) -> int:
        done, self.__pending = self.__pending, []
        for one in done:
            one()
        return len(done)

    def __submit(self, work: Callable[[], object], async_: bool) -> int:
        self.__pending.append(work)
        return 0 if async_ else aio_handle.wait(self)


class AsyncIOBuilder(OpBuilder):
    """The builder of the files."""

    def __init__(self) -> None:
        super().__init__(name="async_io")

    def load(self, verbose: bool = True) -> Any:
        return SimpleNamespace(aio_handle=aio_handle)


class CPUAdagradBuilder(OpBuilder):
    """It has nothing."""


class CPUAdamBuilder(OpBuilder):
    """It has nothing."""


class CPULionBuilder(OpBuilder):
    """It has nothing."""


class PinMemoryBuilder(OpBuilder):
    """It has nothing."""
