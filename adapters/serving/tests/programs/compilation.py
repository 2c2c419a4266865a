"""The Triton kernels of `flagos_serving`, compiled for sm_90 without a GPU: ``compilation.py`` reports their variants.

They are called with the arguments of `kernels.py`, over a double of Triton's driver: it names the chip,
and launches nothing. A kernel that only the interpreter takes is called, too, and the compiler's refusal reported.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import kernels
import torch
import triton
import triton.language as tl
from sm_90 import compile_alone
from triton.runtime.jit import JITFunction

from flagos_serving import triton_kernels

VARIANTS: Counter[str] = Counter()


def count(kernel: Any, made: Any) -> None:
    VARIANTS[kernel.__name__] = sum(len(cached[0]) for cached in kernel.device_caches.values())


@triton.jit
def _different_shapes(out, first, NARROW: tl.constexpr, WIDE: tl.constexpr):
    if first > 0:
        column = tl.arange(0, NARROW)
    else:
        column = tl.arange(0, WIDE)
    tl.store(out + column, column)


def refusal(narrow: int) -> str:
    """What the compiler says of two branches, of which one has blocks of 32 numbers and the other of these."""
    try:
        _different_shapes[(1,)](torch.zeros(32, dtype=torch.int32), 2, NARROW=narrow, WIDE=32)
    except triton.CompilationError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    compile_alone(count)
    for name, cases in kernels.CASES.items():
        for dtype in kernels.TYPES:
            for args in cases(dtype):
                getattr(triton_kernels, name)(*args)
    every = [k for k, found in vars(triton_kernels).items() if isinstance(found, JITFunction)]
    found = {"kernels": every, "variants": dict(VARIANTS)}
    refusals = {width: refusal(width) for width in (32, 16)}
    print("REPORT " + json.dumps({**found, "refusals": refusals}))
