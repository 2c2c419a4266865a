"""The simulated libraries in this process: what they counted and complained of."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from pathlib import Path

import torch

# What a program does before the first call that needs a context; the vendor expects the refusal.
EXPECTED = ("aclrtGetCurrentContext: the thread has no context",)
KINDS = (
    *("tensors", "scalars", "int_arrays", "float_arrays", "bool_arrays", "tensor_lists"),
    *("scalar_lists", "executors"),
)


def is_loaded() -> bool:
    """Whether the ACL runtime of this process is the simulated one."""
    return "simulated_ascend_live" in _names()


@cache
def _names() -> frozenset[str]:
    try:
        library = ctypes.CDLL("libascendcl.so")
    except OSError:
        return frozenset()
    return frozenset(name for name in ("simulated_ascend_live",) if hasattr(library, name))


@cache
def _library() -> ctypes.CDLL:
    library = ctypes.CDLL("libascendcl.so")
    library.simulated_ascend_live.restype = ctypes.c_size_t
    library.simulated_ascend_misuses.restype = ctypes.c_size_t
    library.simulated_ascend_misuse.restype = ctypes.c_char_p
    library.simulated_ascend_misuse.argtypes = [ctypes.c_size_t]
    library.simulated_ascend_calls.restype = ctypes.c_uint64
    library.simulated_ascend_tasks.restype = ctypes.c_uint64
    return library


def live(kind: str) -> int:
    """How many objects of this kind are alive."""
    count = int(_library().simulated_ascend_live(kind.encode()))
    assert count < 1 << 60, f"the simulator knows no {kind}"
    return count


def objects() -> dict[str, int]:
    """The live objects of libnnopbase by kind, after what Python and the device still hold has gone."""
    gc.collect()
    torch.flagos.synchronize()
    return {kind: live(kind) for kind in KINDS}


def calls(function: str) -> int:
    """How often a function was called."""
    return int(_library().simulated_ascend_calls(function.encode()))


def misuses() -> list[str]:
    """What no correct caller does, and this process has done."""
    library = _library()
    all_of_them = (
        library.simulated_ascend_misuse(index).decode()
        for index in range(library.simulated_ascend_misuses())
    )
    return [line for line in all_of_them if not line.startswith(EXPECTED)]


def table(name: str) -> str:
    """A table of the vendor's kernels, `rows.txt` or `functions.txt`."""
    folder = Path(__file__).resolve().parents[1] / "src/kernels"
    return (folder / name).read_text(encoding="utf-8")
