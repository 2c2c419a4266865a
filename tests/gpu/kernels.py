"""A Triton kernel for the tests."""

import triton
import triton.language as tl


@triton.jit
def add_one(pointer, count, BLOCK: tl.constexpr):
    """Adds one to each of the first `count` elements."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < count
    tl.store(pointer + offsets, tl.load(pointer + offsets, mask=mask) + 1, mask=mask)
