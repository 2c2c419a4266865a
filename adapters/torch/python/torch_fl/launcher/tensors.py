"""Reading torch's tensors from Rust without Python's attributes.

torch's stable C functions take the address of an `at::Tensor`, which is a member of the Python object. Its
offset is found by looking for the address of the `TensorImpl`, which torch tells as `Tensor._cdata`, and
then checked on tensors of several kinds. Where anything differs, tensors are read through Python.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import torch

from flagos import _core

_WORD = ctypes.sizeof(ctypes.c_void_p)


def set_up() -> bool:
    """Have tensors read directly; whether that is possible with this torch."""
    types = (torch.Tensor, torch.nn.Parameter)
    addresses = _functions()
    offset = _offset() if addresses else 0
    _core.launch_tensors(types, offset, *(addresses or (0, 0, 0)))
    if offset and not all(_agrees(tensor) for tensor in _samples()):
        _core.launch_tensors(types, 0, 0, 0, 0)
        return False
    return bool(offset)


def _functions() -> tuple[int, int, int] | None:
    """The addresses of the three functions in the library that torch has loaded."""
    try:
        library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
        names = ("aoti_torch_get_data_ptr", "aoti_torch_get_dtype", "aoti_torch_get_device_type")
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (OSError, AttributeError):
        return None
    data_ptr, dtype, device_type = found
    if not (data_ptr and dtype and device_type):
        return None
    return data_ptr, dtype, device_type


def _samples() -> list[torch.Tensor]:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    return [
        base,
        base[1:, 1:],
        base.to(torch.bfloat16),
        torch.empty(0, dtype=torch.int64),
        torch.ones(3, requires_grad=True) * 2,
        torch.nn.Parameter(torch.zeros(5)),
    ]


def _offset() -> int:
    """The offset of the `at::Tensor` in the objects, or 0."""
    found = set()
    for tensor in _samples():
        words = range(2 * _WORD, type(tensor).__basicsize__ - _WORD + 1, _WORD)
        found.add(
            tuple(
                word
                for word in words
                if ctypes.c_void_p.from_address(id(tensor) + word).value == tensor._cdata
            )
        )
    only = found.pop() if len(found) == 1 else ()
    return only[0] if len(only) == 1 else 0


def _agrees(tensor: torch.Tensor) -> bool:
    read = _core.launch_read_tensor(tensor)
    same_dtype = _core.launch_read_tensor(torch.empty(1, dtype=tensor.dtype))
    return (
        read is not None
        and same_dtype is not None
        and read[0] == tensor.data_ptr()
        and read[1] == same_dtype[1]
        and read[2] == 0
    )
