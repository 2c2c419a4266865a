"""The simulated libnnopbase and libopapi, called from a process of its own as `library` calls the runtime.

Torch takes long to load, so that programs that ask for no environment run in forks of one process that has done it.
"""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
import struct
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from core.vendors.ascend.simulated import library
from core.vendors.ascend.simulated.library import H2D, Acl

FOLDER = "SIMULATED_ASCEND_FOLDER"

FLOAT, HALF, INT8, INT32, UINT8, INT16, INT64, DOUBLE, BOOL, BFLOAT16 = (
    0,
    1,
    2,
    3,
    4,
    6,
    9,
    11,
    12,
    27,
)
NCHW, NHWC, ND, FRACTAL_NZ, NCL = 0, 1, 2, 29, 47
CODES = {
    FLOAT: "f",
    HALF: "e",
    INT8: "b",
    INT32: "i",
    UINT8: "B",
    INT16: "h",
    INT64: "q",
    DOUBLE: "d",
    BOOL: "?",
}


class Tensor:
    """A tensor on the device: its handle, and the memory that it begins in."""

    def __init__(self, handle: int, block: int, shape: tuple[int, ...], dtype: int) -> None:
        self.handle = handle
        self.block = block
        self.shape = shape
        self.dtype = dtype


class Aclnn(Acl):
    """The functions of all three libraries by name."""

    def __init__(self) -> None:
        folder = os.environ[FOLDER]
        ctypes.CDLL(f"{folder}/libascendcl.so", ctypes.RTLD_GLOBAL)
        ctypes.CDLL(f"{folder}/libnnopbase.so", ctypes.RTLD_GLOBAL)
        # Torch's own libraries are opened by it, in a process that has not imported torch.
        self.library = ctypes.CDLL(f"{folder}/libopapi.so", ctypes.RTLD_GLOBAL)
        self.kept: list[Any] = []
        self.library.aclGetRecentErrMsg.restype = ctypes.c_char_p
        self.library.simulated_ascend_misuse.restype = ctypes.c_char_p
        self.library.simulated_ascend_operator.restype = ctypes.c_char_p
        for name in (
            "misuses",
            "live",
            "calls",
            "tasks",
            "address",
            "operator_tasks",
            "operator_deterministic",
        ):
            getattr(self.library, f"simulated_ascend_{name}").restype = ctypes.c_uint64
        for kind in (
            "Tensor",
            "Scalar",
            "IntArray",
            "FloatArray",
            "BoolArray",
            "TensorList",
            "ScalarList",
        ):
            getattr(self.library, f"aclCreate{kind}").restype = ctypes.c_void_p

    def prepare(self) -> int:
        """A device and a stream."""
        self.start()
        return self.stream()

    def scalar(self, value: float, dtype: int | None = None) -> int:
        """A scalar of the value's own type, unless another is given."""
        if dtype is None:
            dtype = BOOL if isinstance(value, bool) else INT64 if isinstance(value, int) else DOUBLE
        return int(self.library.aclCreateScalar(struct.pack(CODES[dtype], value), dtype))

    def integers(self, values: Sequence[int]) -> int:
        """An array of integers."""
        array = (ctypes.c_int64 * len(values))(*values)
        return int(self.library.aclCreateIntArray(array, ctypes.c_uint64(len(values))))

    def tensors(self, tensors: Sequence[Tensor | None]) -> int:
        """A list of tensors, which belong to it from now on."""
        array = (ctypes.c_void_p * len(tensors))(
            *(each.handle if each else None for each in tensors)
        )
        return int(self.library.aclCreateTensorList(array, ctypes.c_uint64(len(tensors))))

    def describe(
        self,
        block: int | None,
        shape: Sequence[int],
        dtype: int = FLOAT,
        *,
        strides: Sequence[int] | None = None,
        offset: int = 0,
        format: int = ND,
        storage: Sequence[int] | None = None,
    ) -> int:
        """The handle of a tensor in this memory."""

        def array(values: Sequence[int]) -> Any:
            return (ctypes.c_int64 * len(values))(*values)

        storage = shape if storage is None else storage
        return int(
            self.library.aclCreateTensor(
                array(shape),
                ctypes.c_uint64(len(shape)),
                dtype,
                None if strides is None else array(strides),
                ctypes.c_int64(offset),
                format,
                array(storage),
                ctypes.c_uint64(len(storage)),
                ctypes.c_void_p(block),
            )
            or 0
        )

    def tensor(
        self, values: Sequence[Any] | None, shape: Sequence[int], dtype: int = FLOAT, **more: Any
    ) -> Tensor:
        """A tensor with these values, or with none yet, in memory of its own."""
        count = math.prod(more.get("storage") or shape)
        size = struct.calcsize(CODES[dtype])
        block = self.malloc(count * size) if count else 0
        if values is not None and count:
            data = struct.pack(f"{count}{CODES[dtype]}", *values)
            self.aclrtMemcpy(block, len(data), self.pageable(data), len(data), H2D)
        handle = self.describe(block or None, shape, dtype, **more)
        return Tensor(handle, block, tuple(shape), dtype)

    def values(self, tensor: Tensor) -> list[Any]:
        """What the memory of a tensor holds from its beginning."""
        count = math.prod(tensor.shape)
        data = (
            self.read(tensor.block, count * struct.calcsize(CODES[tensor.dtype])) if count else b""
        )
        return list(struct.unpack(f"{count}{CODES[tensor.dtype]}", data))

    def plan(self, name: str, *arguments: Any) -> tuple[int, int]:
        """Phase 1: the size of the workspace, and the executor."""
        size = ctypes.c_uint64(0xABCD)
        executor = ctypes.c_void_p()
        self.__getattr__(f"{name}GetWorkspaceSize")(
            *map(self.argument, arguments), ctypes.byref(size), ctypes.byref(executor)
        )
        return size.value, executor.value or 0

    def refuse(self, code: int, name: str, *arguments: Any) -> None:
        """A phase 1 that must return this code, with an error text."""
        size, executor = ctypes.c_uint64(), ctypes.c_void_p()
        self.refused(
            code,
            f"{name}GetWorkspaceSize",
            *map(self.argument, arguments),
            ctypes.byref(size),
            ctypes.byref(executor),
        )

    def launch(self, name: str, size: int, executor: int, stream: int) -> None:
        """Phase 2 with a workspace that is given back at once, in the stream's order."""
        workspace = self.malloc(size) if size else None
        self.__getattr__(name)(workspace, size, executor, stream)
        if workspace:
            self.aclrtSynchronizeStream(stream)
            self.aclrtFree(workspace)

    def do(self, stream: int, name: str, *arguments: Any) -> None:
        """Both phases, and waits."""
        self.launch(name, *self.plan(name, *arguments), stream)
        self.aclrtSynchronizeStream(stream)

    @staticmethod
    def argument(value: Any) -> Any:
        """A tensor's handle; everything else as it is."""
        if isinstance(value, Tensor):
            return value.handle
        if isinstance(value, bool):
            return int(value)
        if isinstance(value, str):
            return value.encode()
        assert not isinstance(value, float), (
            "a number by value must say whether it is float or double"
        )
        return value


Program = Callable[[Aclnn], None]


def program(*recorded: str, **environment: str) -> Callable[[Program], Program]:
    """Registers a program that is recorded for exactly this, with SIMULATED_ASCEND_ variables."""
    register = library.program(*recorded, **environment)

    def register_of_aclnn(function: Program) -> Program:
        return cast(Program, register(cast(library.Program, function)))

    return register_of_aclnn


def run_all(folder: Path, names: list[str]) -> dict[str, tuple[list[str], list[str]]]:
    """What is recorded of programs without an environment: as the library says, and as the report's file says."""
    with tempfile.TemporaryDirectory() as temporary:
        environment = {
            key: value
            for key, value in os.environ.items()
            if not key.startswith("SIMULATED_ASCEND_")
        }
        environment[FOLDER] = str(folder)
        environment["SIMULATED_ASCEND_REPORT"] = f"{temporary}/report"
        done = subprocess.run(
            [sys.executable, "-S", "-m", "core.vendors.ascend.simulated.aclnn", *names],
            env=environment,
            cwd=Path(__file__).parents[4],
            capture_output=True,
            text=True,
            timeout=300,
        )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return {name: (said, filed) for name, said, filed in map(json.loads, done.stdout.splitlines())}


def main(names: list[str]) -> None:
    """Runs each program in a fork, and prints a line of what it was recorded for."""
    registry = importlib.import_module("core.vendors.ascend.simulated.library")
    acl = importlib.import_module("core.vendors.ascend.simulated.aclnn").Aclnn()
    report = Path(os.environ["SIMULATED_ASCEND_REPORT"])
    for name in names:
        importlib.import_module(f"core.vendors.ascend.simulated.{name.partition('.')[0]}")
        before = len(report.read_text().splitlines()) if report.exists() else 0
        end, begin = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                registry.CASES[name].program(acl)
                os.write(begin, json.dumps(acl.misuses()).encode())
            except BaseException:
                os.write(begin, json.dumps([traceback.format_exc()[-3000:]]).encode())
            os._exit(0)
        os.close(begin)
        with os.fdopen(end) as pipe:
            said = pipe.read()
        status = os.waitpid(child, 0)[1]
        filed = report.read_text().splitlines()[before:] if report.exists() else []
        print(json.dumps([name, json.loads(said) if said else [f"ended with {status}"], filed]))


if __name__ == "__main__":
    main(sys.argv[1:])
