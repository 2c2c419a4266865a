"""Triton's compiled kernels: what Rust needs to launch one, and telling recorders of launches."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypedDict

from flagos import _core
from torch_fl.calls import Args
from torch_fl.launcher import reasons, source_hashes
from torch_fl.launcher.reasons import Unsupported

_CLASS = "triton.compiler.CompiledKernel"
_ATTRIBUTE = "_flagos_kernel"


@dataclass(frozen=True)
class BackEnd:
    """A back end of Triton's whose launches Rust can make: its name, and the classes of its module `driver`.

    A launch is the same for each: the parameters in order, then the addresses of two scratch memories.
    """

    name: str
    launcher: str
    driver: str
    make_launcher: str
    """The name of its function `make_launcher` in `source_hashes.HASHES`."""


BACK_ENDS = {
    "nvidia": BackEnd("nvidia", "CudaLauncher", "CudaDriver", "make_launcher"),
    "metax": BackEnd("maca", "MacaLauncher", "MacaDriver", "maca.make_launcher"),
}
"""By the names of their folders in `triton.backends`."""


def register() -> None:
    """Called when Triton's compiler is imported."""
    install()


def install() -> None:
    """Tell recorders of the launches that Triton makes itself."""
    from triton.compiler.compiler import CompiledKernel

    run = vars(CompiledKernel).get("run")
    if not _core.launch_enabled() or isinstance(run, _Run):
        return
    if not isinstance(run, property) or run.fget is None:
        reasons.leave_alone(_CLASS, "this version has no property run")  # such as triton-ascend 3.2
        return
    reason = source_hashes.mismatch(
        {
            "CompiledKernel.run": run.fget,
            "CompiledKernel.__getitem__": CompiledKernel.__getitem__,
        }
    )
    if reason is not None:
        reasons.leave_alone(_CLASS, reason)
        return
    reasons.take_over(_CLASS)
    CompiledKernel.run = _Run(run.fget)


def uninstall() -> None:
    """Give the class its own property back."""
    module = sys.modules.get("triton.compiler.compiler")
    run = vars(module.CompiledKernel).get("run") if module is not None else None
    if module is not None and isinstance(run, _Run):
        module.CompiledKernel.run = property(run.fget)


class _Run(property):
    """The property `run`, which gives what launches the kernel.

    A property goes before the kernel's own attributes: Inductor writes an attribute `run` that is None into kernels
    that another process has compiled.
    """

    flagos = True
    """The mark by which the recorder (torch_fl.python_kernels.capture) sees that launches are reported."""

    def __get__(self, kernel: Any, owner: type | None = None) -> Any:
        run = super().__get__(kernel, owner)
        if kernel is None:
            return run
        recorder = _core.launch_recorder()
        return run if recorder is None else functools.partial(_recorded, kernel, run, recorder)


def _recorded(
    kernel: Any, run: Any, recorder: Any, x: int, y: int, z: int, stream: int, *rest: Any
) -> None:
    run(x, y, z, stream, *rest)
    if x * y * z > 0:
        # Before the arguments: function, metadata, launch metadata and the two hooks.
        recorder(kernel, (x, y, z), stream, rest[5:])


def native(kernel: Any) -> Any:
    """The kernel for Rust, made once. Raises `Unsupported` when it needs Triton's own launcher."""
    found = vars(kernel).get(_ATTRIBUTE)
    if found is None:
        types = [kind for kind in signature(kernel).values() if kind != "constexpr"]
        num_warps, num_ctas, shared, *_ = kernel.packed_metadata
        metadata = kernel.metadata
        found = _core.CompiledKernel(
            backend(type(kernel._run)),
            kernel.function,
            num_warps * metadata.target.warp_size,
            num_ctas,
            shared,
            bool(getattr(metadata, "launch_cooperative_grid", False)),
            bool(getattr(metadata, "launch_pdl", False)),
            types,
        )
        setattr(kernel, _ATTRIBUTE, found)
    return found


def backend(kind: type) -> str:
    """The Triton backend that a class belongs to, by the name that vendors know."""
    folder = _folder(kind)
    return BACK_ENDS[folder].name if folder in BACK_ENDS else folder


def _folder(kind: type) -> str:
    """The folder in `triton.backends` that a class is from; "" for any other class."""
    parts = kind.__module__.split(".")
    return parts[2] if parts[:2] == ["triton", "backends"] and len(parts) > 2 else ""


def known_driver(active: Any) -> BackEnd | None:
    """The back end of Triton's active driver, if Rust can make its launches."""
    for kind in type(active).__mro__:
        known = BACK_ENDS.get(_folder(kind))
        if known is not None and kind.__name__ == known.driver:
            return known
    return None


def signature(kernel: Any, tensor_maps: bool = False) -> dict[str, str]:
    """The type of every parameter of a kernel that Rust can launch. Raises `Unsupported` otherwise.

    With `tensor_maps`, those that are passed as tensor maps are among them.
    """
    from triton.compiler.compiler import ASTSource, CompiledKernel

    if type(kernel) is not CompiledKernel or type(kernel.src) is not ASTSource:
        raise Unsupported(f"it is a {type(kernel).__name__}, not a kernel compiled from source")
    launcher = type(kernel._run)
    # One that launches nothing, for kernels that are compiled without a device, names the one that would launch them.
    launcher = getattr(launcher, "stands_for", launcher)
    known = BACK_ENDS.get(_folder(launcher))
    if known is None or launcher.__name__ != known.launcher:
        raise Unsupported(f"it is launched by a {launcher.__name__}")
    driver = importlib.import_module(launcher.__module__)
    reason = source_hashes.mismatch(
        {
            f"{known.launcher}.__call__": launcher.__call__,
            known.make_launcher: driver.make_launcher,
        }
    )
    if reason is not None:
        raise Unsupported(reason)
    metadata = kernel.metadata
    for scratch in ("global_scratch_size", "profile_scratch_size"):
        if getattr(metadata, scratch, 0):
            raise Unsupported(f"it needs scratch memory ({scratch})")
    described = getattr(metadata, "tensordesc_meta", None) or []
    if described and not tensor_maps:
        raise Unsupported("it takes tensor descriptors")
    for name, kind in kernel.src.signature.items():
        if isinstance(kind, str) and kind.startswith("tensordesc") and described:
            continue
        if not isinstance(kind, str) or kind.startswith(("tensordesc", "nvTmaDesc")):
            raise Unsupported(f"its parameter {name} is of type {kind}")
    found: dict[str, str] = kernel.src.signature
    return found


class TensorMap(TypedDict):
    """A tensor map, as `FlagosTensorMap` has it."""

    data_type: int
    shape: list[int]
    strides: list[int]
    block: list[int]
    swizzle: int
    fills_with_nan: int


Parameter = tuple[int, str, int, TensorMap | None]
"""Size in bytes, kind, bits, and what a tensor map is."""


class Launch(TypedDict):
    """A launch as the core's C table takes it, `FlagosLaunchDesc`."""

    function: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    cluster: tuple[int, int, int]
    shared_bytes: int
    cooperative: bool
    pdl: bool
    params: list[Parameter]


def describe(kernel: Any, grid: tuple[int, int, int], args: Args) -> Launch:
    """A launch as the core's C table takes it (`FlagosLaunchDesc`), from what a recorder was told.

    `function`, `grid`, `block` and `cluster` (three numbers each, in blocks and threads), `shared_bytes`,
    `cooperative`, `pdl`, and `params`: for each parameter that is passed, in order, its size in bytes,
    its kind (`constant`, `pointer` or `tensor map`), its bits, which are the address of the others, and
    for a tensor map what `FlagosTensorMap` says. Raises `Unsupported` for a kernel that needs Triton's
    launcher.
    """
    params: list[Parameter] = []

    def add(name: str, kind: str, value: Any) -> None:
        plain = value.data_ptr() if hasattr(value, "data_ptr") else value
        bits = _core.launch_pack(kind, plain)
        if bits is None:
            raise Unsupported(f"its parameter {name} of type {kind} cannot be {value!r}")
        params.append(
            (_core.launch_size(kind), "pointer" if kind.startswith("*") else "constant", bits, None)
        )

    described = iter(getattr(kernel.metadata, "tensordesc_meta", None) or ())
    for (name, kind), value in zip(signature(kernel, True).items(), args, strict=True):
        if kind == "constexpr":
            continue
        if not kind.startswith("tensordesc"):
            add(name, kind, value)
            continue
        shape, tensor_map = _tensor_map(next(described), value)
        params.append((128, "tensor map", value.base.data_ptr(), tensor_map))
        for size in shape:
            add(name, "i32", size)
        for stride in value.strides:
            add(name, "i64", stride)
    # Triton's launcher appends the global and the profiling scratch memory, which these do not need.
    params += [(8, "constant", 0, None)] * 2
    num_warps, num_ctas, shared, *_ = kernel.packed_metadata
    return {
        "function": kernel.function,
        "grid": (grid[0] * num_ctas, grid[1], grid[2]),
        "block": (kernel.metadata.target.warp_size * num_warps, 1, 1),
        "cluster": (num_ctas, 1, 1),
        "shared_bytes": shared,
        "cooperative": bool(getattr(kernel.metadata, "launch_cooperative_grid", False)),
        "pdl": bool(getattr(kernel.metadata, "launch_pdl", False)),
        "params": params,
    }


def _tensor_map(encoding: Mapping[str, Any], descriptor: Any) -> tuple[list[int], TensorMap]:
    """The shape that is passed, and the map, as Triton's `make_tensordesc_arg` makes them."""
    from triton.backends.nvidia import driver

    reason = source_hashes.mismatch({"make_tensordesc_arg": driver.make_tensordesc_arg})
    if reason is not None:
        raise Unsupported(reason)
    shape = list(descriptor.shape)
    if encoding["fp4_padded"]:
        shape[-1] *= 2
    size = encoding["elem_size"]
    strides = [size * stride for stride in reversed(descriptor.strides[:-1])]
    return shape, {
        "data_type": driver.TMA_DTYPE_DEVICE_TO_HOST[encoding["elem_type"]],
        "shape": shape[::-1],
        # The last one is not read by the driver.
        "strides": [*strides, 0],
        "block": list(reversed(encoding["block_size"])),
        "swizzle": encoding["swizzle"],
        "fills_with_nan": int(descriptor.padding == "nan"),
    }
