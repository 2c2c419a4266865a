"""Triton's compiler without a GPU, over a double of its driver: it names a chip of sm_90, and launches nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction


class Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_alone(seen: Callable[[Any, Any], None]) -> None:
    """Has launches compile alone. ``seen`` gets each kernel that was to be launched, and what it compiled to."""
    triton.runtime.driver.set_active(Driver())
    run = JITFunction.run

    def compiled(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        made = run(kernel, *args, grid=grid, warmup=True, **options)
        assert made.asm["ptx"]
        seen(kernel, made)
        return made

    JITFunction.run = compiled
