"""The Triton kernels of `flagos_serving`, compiled for sm_90 without a GPU: ``compilation.py`` reports their variants.

They are called with the arguments of `kernels.py`, over a double of Triton's driver: it names the chip,
and launches nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import kernels
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from flagos_serving import triton_kernels

VARIANTS: Counter[str] = Counter()


class Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_alone() -> None:
    run = JITFunction.run

    def compiled(kernel: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        before = sum(len(cached[0]) for cached in kernel.device_caches.values())
        made = run(kernel, *args, grid=grid, warmup=True, **options)
        assert made.asm["ptx"]
        after = sum(len(cached[0]) for cached in kernel.device_caches.values())
        VARIANTS[kernel.__name__] += after - before
        return made

    JITFunction.run = compiled


if __name__ == "__main__":
    triton.runtime.driver.set_active(Driver())
    compile_alone()
    for name, cases in kernels.CASES.items():
        for dtype in kernels.TYPES:
            for args in cases(dtype):
                getattr(triton_kernels, name)(*args)
    every = [k for k, found in vars(triton_kernels).items() if isinstance(found, JITFunction)]
    print("REPORT " + json.dumps({"kernels": every, "variants": VARIANTS}))
