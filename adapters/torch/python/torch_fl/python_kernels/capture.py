"""Records the device work of one call of a Python implementation, as words that the shim replays (`replay.cc`).

An implementation runs once as usual, while its allocations, views, fills and copies (seen in torch's
dispatcher) and its kernel launches (seen in `torch_fl.launcher`) are recorded. It may touch only memory of its
arguments and its own, and may call only operators known to be repeatable; otherwise a `Refusal` gives the
reason.

A recording cannot see the Python values that a call depends on. The module globals that were read are
watched, and a change of one drops every recording (`torch_fl.python_kernels.globals_watch`).
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from torch_fl import launcher
from torch_fl.calls import Args
from torch_fl.launcher.compiled import TensorMap
from torch_fl.native import native
from torch_fl.python_kernels import globals_watch

_LAUNCH, _FILL, _COPY = range(3)
_INTEGER, _DOUBLE, _BOOL = range(3)
_HOST = "cpu"  # operators inside a recorded call must have no results on this device
_CONSTANT, _POINTER, _TENSOR_MAP = range(3)
_COOPERATIVE, _PDL = 1, 2

_ops = torch.ops.aten
# Operators that allocate uninitialised memory.
_EMPTY = {
    _ops.empty.memory_format,
    _ops.empty_strided.default,
    _ops.empty_like.default,
    _ops.new_empty.default,
    _ops.new_empty_strided.default,
    _ops.empty_permuted.default,
}
# Operators that allocate memory and fill it with one value: the value, or the name of the argument that has it.
_FILLED = {
    _ops.zeros.default: 0,
    _ops.zeros_like.default: 0,
    _ops.new_zeros.default: 0,
    _ops.ones.default: 1,
    _ops.ones_like.default: 1,
    _ops.new_ones.default: 1,
    _ops.full.default: "fill_value",
    _ops.full_like.default: "fill_value",
    _ops.new_full.default: "fill_value",
}
# Operators whose results depend on dtypes and shapes alone, which are in the signature.
_PURE = {
    _ops.promote_types.default,
    _ops.result_type.Tensor,
    _ops.result_type.Scalar,
    _ops.result_type.Scalar_Tensor,
    _ops.result_type.Scalar_Scalar,
    _ops.can_cast.default,
    _ops.is_same_size.default,
}
# Operators that copy their first argument, possibly to another dtype.
_COPIES = {_ops.clone.default, _ops._to_copy.default, _ops.contiguous.default}


class Refusal(Exception):
    """Raised for a call that cannot be recorded; the message gives the reason."""


def record(
    function: Callable[..., Any],
    inputs: list[torch.Tensor],
    args: Any,
    kwargs: Any,
    without_device: bool = False,
) -> tuple[Any, list[int] | Refusal]:
    """Call `function` and record its device work. Returns its result, and the words or a `Refusal`.

    `inputs` are the tensors among the arguments, in order. Errors of the function are raised. Without a device (kernel
    packs are made so) all tensors are on the host and all launches on stream 0, and the caller sees to it that nothing
    stays on the host.
    """
    recording = _Recording(inputs, without_device)
    scopes = globals_watch.Scopes()
    with launcher.recording(recording.launched), recording, scopes:
        result = function(*args, **kwargs)
    try:
        words = recording.words(result)
        scopes.watch()
    except (Refusal, RuntimeError) as refusal:  # the call itself succeeded; it is just not recorded
        return result, Refusal(str(refusal))
    return result, words


class _Recording(TorchDispatchMode):
    def __init__(self, inputs: list[torch.Tensor], without_device: bool) -> None:
        super().__init__()
        self._inputs = inputs
        self._without_device = without_device
        # (first byte, bytes, memory, the address its offsets count from)
        self._known: list[tuple[int, int, int, int]] = []
        self._by_storage: dict[int, int] = {}
        self._alive: list[Any] = []  # keeps all tensors alive, so that no address is used twice
        self._blocks: list[int] = []
        self._steps: list[list[int]] = []
        self._refusal: Refusal | None = None
        for index, tensor in enumerate(inputs):
            storage = tensor.untyped_storage()
            if storage._cdata in self._by_storage:
                continue
            self._by_storage[storage._cdata] = index
            first = int(tensor.storage_offset()) * tensor.element_size()
            self._know(storage, index, storage.data_ptr() + first)

    def _know(self, storage: torch.UntypedStorage, memory: int, origin: int) -> None:
        self._known.append((storage.data_ptr(), storage.nbytes(), memory, origin))
        self._alive.append(storage)

    def _refuse(self, reason: str) -> None:
        if self._refusal is None:
            self._refusal = Refusal(reason)

    # ---- memory

    def _memory_at(self, address: int) -> tuple[int, int] | None:
        for start, nbytes, memory, origin in self._known:
            if start <= address < start + max(nbytes, 1):
                return memory, address - origin
        return None

    def _new_block(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        self._blocks.append(storage.nbytes())
        memory = -len(self._blocks)
        self._by_storage[storage._cdata] = memory
        self._know(storage, memory, storage.data_ptr())

    def _place(self, tensor: torch.Tensor) -> list[int]:
        storage = tensor.untyped_storage()
        memory = self._by_storage.get(storage._cdata)
        if memory is None:
            raise Refusal(f"it uses a tensor from elsewhere, of shape {tuple(tensor.shape)}")
        if tensor.is_conj() or tensor.is_neg() or tensor.layout != torch.strided:
            raise Refusal(
                "it uses a tensor with a conjugate or negative bit, or one that is not dense"
            )
        first = tensor.storage_offset() * tensor.element_size()
        if memory >= 0:
            base = self._inputs[memory]
            first -= base.storage_offset() * base.element_size()
        return [
            memory,
            first,
            _dtype_number(tensor.dtype),
            tensor.dim(),
            *tensor.shape,
            tensor.dim(),
            *tensor.stride(),
        ]

    # ---- events

    def launched(self, kernel: Any, grid: Any, stream: int, args: Args) -> None:
        """Called after each kernel launch."""
        try:
            self._steps.append(self._launch(kernel, grid, stream, args))
        except Refusal as refusal:
            self._refuse(str(refusal))
        except Exception as error:
            # The launch itself succeeded, so failing to record it must not raise.
            self._refuse(f"a launch cannot be described: {error}")

    def _launch(self, kernel: Any, grid: Any, stream: int, args: Args) -> list[int]:
        current = 0 if self._without_device else native().stream_handle()
        if stream != current:
            raise Refusal("it launches on a stream other than the current one")
        launch = launcher.describe(kernel, grid, args)
        flags = launch["cooperative"] * _COOPERATIVE | launch["pdl"] * _PDL
        words = [
            _LAUNCH,
            launch["function"],
            *launch["grid"],
            *launch["block"],
            *launch["cluster"],
            launch["shared_bytes"],
            flags,
            len(launch["params"]),
        ]
        for size, kind, bits, tensor_map in launch["params"]:
            found = self._memory_at(bits) if bits and size >= 8 else None
            if kind == "constant":
                if found is not None:
                    raise Refusal("a kernel is given an address as a number")
                words += [size, _CONSTANT, _signed(bits)]
            elif not bits:
                words += [size, _CONSTANT, 0]
            elif found is None:
                raise Refusal("a kernel is given memory that is neither an argument's nor its own")
            elif tensor_map is None:
                words += [size, _POINTER, *found]
            else:
                words += [size, _TENSOR_MAP, *found, *_map_words(tensor_map)]
        self._alive.append(args)
        return words

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        try:
            self._dispatched(func, args, kwargs or {}, result)
        except Refusal as refusal:
            self._refuse(str(refusal))
        return result

    def _dispatched(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        if func in _PURE:
            return
        self._alive += [args, kwargs, result]
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        device = next((t.device for t in self._inputs), None)
        on_host = not self._without_device and any(t.device.type == _HOST for t in tensors)
        if on_host or (device is not None and any(tensor.device != device for tensor in tensors)):
            raise Refusal(f"it calls {func}, whose result is on another device")
        if func in _EMPTY:
            self._new_block(result)
        elif func in _FILLED:
            self._new_block(result)
            self._fill(result, _FILLED[func], args, kwargs, func)
        elif func in _COPIES:
            if result.untyped_storage()._cdata not in self._by_storage:
                self._new_block(result)
                self._steps.append([_COPY, *self._place(result), *self._place(args[0])])
        elif func is _ops.copy_.default:
            self._steps.append([_COPY, *self._place(args[0]), *self._place(args[1])])
        elif func is _ops.fill_.Scalar:
            self._steps.append([_FILL, *self._place(args[0]), *_scalar(args[1])])
        elif func is _ops.zero_.default:
            self._steps.append([_FILL, *self._place(args[0]), *_scalar(0)])
        elif not (
            func.is_view and all(t.untyped_storage()._cdata in self._by_storage for t in tensors)
        ):
            raise Refusal(f"it calls {func}, which is not recorded")

    def _fill(self, result: torch.Tensor, value: Any, args: Any, kwargs: Any, func: Any) -> None:
        if isinstance(value, str):
            names = [argument.name for argument in func._schema.arguments]
            position = names.index(value)
            value = args[position] if position < len(args) else kwargs[value]
        self._steps.append([_FILL, *self._place(result), *_scalar(value)])

    # ---- the recording

    def words(self, result: Any) -> list[int]:
        """The words of the recording. Raises `Refusal` for a call that cannot be recorded."""
        if self._refusal is not None:
            raise self._refusal
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if isinstance(result, list):
            raise Refusal("it returns a list")
        compiler = sys.modules.get("triton.compiler.compiler")
        if compiler is not None and not getattr(compiler.CompiledKernel.run, "flagos", False):
            raise Refusal("launches cannot be recorded: the launcher is not installed")
        if not self._steps and (any(self._blocks) or any(t.numel() for t in self._inputs)):
            raise Refusal("nothing was seen that writes its results")
        words = [len(self._blocks), *self._blocks, len(self._steps)]
        for step in self._steps:
            words += step
        words.append(len(results))
        for tensor in results:
            words += self._result(tensor)
        return words

    def _result(self, tensor: Any) -> list[int]:
        if not isinstance(tensor, torch.Tensor):
            raise Refusal(f"it returns a {type(tensor).__name__}")
        for index, argument in enumerate(self._inputs):
            if tensor is argument:
                return [index]
        place = self._place(tensor)
        if place[0] >= 0:
            raise Refusal("it returns a view of an argument")
        return [-1, *place]


def _map_words(described: TensorMap) -> list[int]:
    words = [described["data_type"], len(described["shape"])]
    for axis in zip(described["shape"], described["strides"], described["block"], strict=True):
        words += axis
    return [*words, described["swizzle"], described["fills_with_nan"]]


def _signed(bits: int) -> int:
    return bits - (1 << 64) if bits >= 1 << 63 else bits


def _scalar(value: Any) -> list[int]:
    if isinstance(value, bool):
        return [_BOOL, int(value)]
    if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
        return [_INTEGER, value]
    if isinstance(value, float):
        return [_DOUBLE, struct.unpack("<q", struct.pack("<d", value))[0]]
    raise Refusal(f"it fills memory with {value!r}")


# The numbers of c10::ScalarType, which torch's serialization format fixes.
_DTYPES = [
    "uint8",
    "int8",
    "int16",
    "int32",
    "int64",
    "float16",
    "float32",
    "float64",
    "complex32",
    "complex64",
    "complex128",
    "bool",
    "qint8",
    "quint8",
    "qint32",
    "bfloat16",
]
_DTYPE_NUMBERS = {getattr(torch, name): number for number, name in enumerate(_DTYPES)} | {
    torch.float8_e5m2: 23,
    torch.float8_e4m3fn: 24,
    torch.float8_e5m2fnuz: 25,
    torch.float8_e4m3fnuz: 26,
}


def _dtype_number(dtype: torch.dtype) -> int:
    if dtype not in _DTYPE_NUMBERS:
        raise Refusal(f"it uses a tensor of {dtype}")
    return _DTYPE_NUMBERS[dtype]


def describe_inputs(inputs: list[torch.Tensor]) -> str:
    """The tensors of a signature, as text for a reason: `float32[2, 3], int64[4]`."""
    return ", ".join(f"{str(t.dtype).removeprefix('torch.')}{list(t.shape)}" for t in inputs)


SUPPORTED = sys.version_info >= (3, 12)
"""Whether recordings are made: watching globals needs CPython 3.12."""
