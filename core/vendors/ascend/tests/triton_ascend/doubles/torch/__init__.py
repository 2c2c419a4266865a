"""A double of torch for a Python without it: tensors of memory and streams of flagos' core, without operators.

Everything that `flagos_ascend.triton_ascend` and Triton ask of torch at a launch is here, over the core's C table as
the real adapter has it. The core and its allocator are the real ones.
"""

from __future__ import annotations

import array
import builtins
import ctypes
import os
import re
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

from flagos import _core


def _table() -> dict[str, Any]:
    """The functions of `FlagosApi` by name, as the header orders them."""
    text = Path(os.environ["CORE_HEADER"]).read_text()
    struct = text[text.index("typedef struct FlagosApi {") : text.index("} FlagosApi;")]
    names = re.findall(r"^  \S.*?\(\*(\w+)\)\(", struct, re.MULTILINE)
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(_core.api_capsule(), b"flagos.FlagosApi")
    # Before the functions: the size of the table, and the version with its padding.
    pointers = (ctypes.c_void_p * len(names)).from_address(address + 16)
    kind = ctypes.CFUNCTYPE(ctypes.c_int32)
    return {name: kind(pointer) for name, pointer in zip(names, pointers, strict=True)}


_functions = _table()
_functions["last_error"].restype = ctypes.c_char_p


class OutOfMemoryError(RuntimeError):
    """As torch's."""


def _call(name: str, *arguments: Any) -> None:
    _core.init()
    code = _functions[name](*arguments)
    if code != 0:
        kind = OutOfMemoryError if code == 3 else RuntimeError
        raise kind(_functions["last_error"]().decode())


class dtype:
    """An element's type."""

    def __init__(self, name: str, code: str) -> None:
        self.name, self.code = name, code

    def __repr__(self) -> str:
        return f"torch.{self.name}"


float32, int32, int64, uint8 = (
    dtype(*pair) for pair in (("float32", "f"), ("int32", "i"), ("int64", "q"), ("uint8", "B"))
)
float64, float16, bfloat16, int8, int16, bool, complex64, complex128 = (
    dtype(name, "")
    for name in (
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "int16",
        "bool",
        "complex64",
        "complex128",
    )
)


class device:
    """A device's type and index."""

    def __init__(self, text: str, index: int | None = None) -> None:
        self.type, _, number = text.partition(":")
        self.index = int(number) if number else index


class Stream:
    """A stream of the core."""

    def __init__(
        self, device: str | None = None, *, _id: int | None = None, _index: int = 0
    ) -> None:
        self.device_index, self.stream_id = _index, _id or 0
        if _id is None:
            self.device_index = flagos.current_device() if device is None else int(device[7:] or 0)
            made = ctypes.c_uint64()
            _call("stream_create", self.device_index, 0, ctypes.byref(made))
            self.stream_id = made.value

    def synchronize(self) -> None:
        _call("stream_sync", self.device_index, ctypes.c_uint64(self.stream_id))


class Tensor:
    """Memory of the host (an array) or of a device."""

    def __init__(self, kind: dtype, shape: tuple[int, ...], device: int | None) -> None:
        self.dtype, self.shape, self.index = kind, shape, device
        self.block, self.address = ctypes.c_void_p(), ctypes.c_void_p()
        if device is None:
            self.values = array.array(kind.code or "B", bytes(self.nbytes))
        else:
            stream = ctypes.c_uint64(flagos.current_stream(device).stream_id)
            out = ctypes.byref(self.address), ctypes.byref(self.block)
            _call("mem_alloc", device, stream, ctypes.c_size_t(self.nbytes), *out)

    @property
    def nbytes(self) -> int:
        return array.array(self.dtype.code or "B").itemsize * self.shape[0]

    def data_ptr(self) -> int:
        return (self.values.buffer_info()[0] if self.index is None else self.address.value) or 0

    def numel(self) -> int:
        return self.shape[0]

    def size(self) -> tuple[int, ...]:
        return self.shape

    def _copy(self, to: Tensor, index: int) -> Tensor:
        stream = flagos.current_stream(index)
        addresses = map(ctypes.c_void_p, (to.data_ptr(), self.data_ptr()))
        identity = ctypes.c_uint64(stream.stream_id)
        _call("copy_async", index, identity, *addresses, ctypes.c_size_t(self.nbytes))
        stream.synchronize()
        return to

    def to(self, device: str) -> Tensor:
        index = flagos.current_device()
        return self._copy(Tensor(self.dtype, self.shape, index), index)

    def cpu(self) -> Tensor:
        assert self.index is not None
        return self._copy(Tensor(self.dtype, self.shape, None), self.index)

    def tolist(self) -> list[Any]:
        return self.values.tolist()

    def record_stream(self, stream: Stream) -> None:
        _call("mem_record_stream", self.block, ctypes.c_uint64(stream.stream_id))

    def __del__(self) -> None:
        _functions["mem_free"](self.block)


def empty(size: int, dtype: dtype = float32, device: str = "cpu") -> Tensor:
    return Tensor(dtype, (size,), None if device == "cpu" else flagos.current_device())


def are_deterministic_algorithms_enabled() -> builtins.bool:
    return False


def tensor(values: list[Any], dtype: dtype = float32) -> Tensor:
    made = empty(len(values), dtype)
    made.values[:] = array.array(dtype.code, values)
    return made


class _Flagos(ModuleType):
    """The module torch.flagos."""

    Stream = Stream

    def __init__(self) -> None:
        super().__init__("torch.flagos")
        self._thread = threading.local()

    def device_count(self) -> int:
        return int(_core.device_count())

    def current_device(self) -> int:
        return getattr(self._thread, "device", 0)

    def set_device(self, index: int) -> None:
        self._thread.device = index

    def _streams(self) -> dict[int, int]:
        return self._thread.__dict__.setdefault("streams", {})

    def current_stream(self, index: int | None = None) -> Stream:
        index = self.current_device() if index is None else index
        return Stream(_id=self._streams().get(index, 0), _index=index)

    def stream(self, stream: Stream) -> Any:
        return _Current(stream)

    def synchronize(self) -> None:
        _call("device_sync", self.current_device())

    def memory_allocated(self) -> int:
        return self._statistic(4)

    def memory_reserved(self) -> int:
        return self._statistic(5)

    def _statistic(self, index: int) -> int:
        # Of FlagosMemoryStats, whose entries have three parts of four numbers.
        numbers = (ctypes.c_int64 * 256)()
        _call("mem_stats", self.current_device(), numbers)
        return int(numbers[12 * index])


class _Current:
    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        self.streams = flagos._streams()
        self.before = self.streams.get(self.stream.device_index, 0)
        self.streams[self.stream.device_index] = self.stream.stream_id

    def __exit__(self, *_: object) -> None:
        self.streams[self.stream.device_index] = self.before


flagos = _Flagos()

import torch_fl  # noqa: E402, F401  # as torch loads what its entry points name
