"""Launching Triton's and FlagGems' kernels from Rust.

`JITFunction[grid](...)` of Triton and `LibEntry` of FlagGems spend most of a launch in Python: binding
arguments, specialising them, building keys. Installed, this package stands in for both. A call like one
that was seen twice goes straight to `cuLaunchKernelEx`; whatever is not understood takes the original
path, and `statistics` says how often and why.

The results are the same by construction: the native path decides nothing about a kernel. Which kernel
serves a call, and with which constants, is learnt from what the original path did with an equal call.

`FLAGOS_LAUNCHER=0` keeps all of this away. `recording` tells of every launch of a thread, native or not.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from flagos import _core
from torch_fl.launcher import compiled, entry, jit, reasons
from torch_fl.launcher.compiled import describe

__all__ = [
    "Recorder",
    "describe",
    "install",
    "installed",
    "recording",
    "reset_statistics",
    "set_recorder",
    "statistics",
    "uninstall",
]

Recorder = Callable[[Any, tuple[int, int, int], int, tuple[Any, ...]], None]
"""`recorder(kernel, grid, stream, args)`: the `CompiledKernel`, the number of programs along each axis (of
which each is `num_ctas` blocks), the stream's handle, and the value of every parameter of the function,
compile-time constants among them, in order."""

_PARTS: dict[str, Any] = {
    "triton.runtime.jit": jit.CLASS,
    "triton.compiler.compiler": compiled,
    "flag_gems.utils.libentry": entry.CLASS,
}


def install() -> dict[str, str]:
    """Stand in for those of Triton's and FlagGems' classes that are loaded; the others follow when they are.

    Returns what was left alone, with the reason. Installing twice changes nothing.
    """
    for name, part in _PARTS.items():
        if name in sys.modules:
            part.install()
    return reasons.not_installed()


def uninstall() -> None:
    """Give Triton's and FlagGems' classes their own methods back."""
    for part in _PARTS.values():
        part.uninstall()


def installed() -> list[str]:
    """The classes that launch natively now."""
    return [name for part in (jit.CLASS, entry.CLASS) for name in part.installed()]


def statistics() -> dict[str, Any]:
    """How launches went since the start, or since `reset_statistics`.

    `native`: launches from Rust; `fallback`: launches on the original path by reason; `kernels`: the kernels
    that always take it, each with the reason; `left_alone`: classes that were not replaced, with the reason.
    """
    return {
        **_core.launch_statistics(),
        "kernels": reasons.kernels(),
        "left_alone": reasons.not_installed(),
    }


def reset_statistics() -> None:
    """Count from 0 again."""
    _core.launch_reset_statistics()


def set_recorder(recorder: Recorder | None) -> Recorder | None:
    """Calls `recorder` for every launch of this thread, after it was queued; `None` removes the recorder.

    Returns the previous one. A launch of no programs does not count. The launch raises what the recorder raises.
    """
    previous: Recorder | None = _core.launch_set_recorder(recorder)
    return previous


@contextmanager
def recording(recorder: Recorder) -> Iterator[None]:
    """Calls `recorder` for every launch of this thread in the `with` block."""
    previous = set_recorder(recorder)
    try:
        yield
    finally:
        set_recorder(previous)
