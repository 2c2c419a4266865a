"""Triton kernels of the tests. triton-ascend compiles them as far as it can without CANN; what the simulated chip then
runs is the text of `BINARIES`, by the kernel's name (`core/vendors/ascend/simulated_rt`)."""

# No `annotations` from the future: Triton reads them as objects.
import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    tl.store(
        out + index, tl.load(x + index, mask=inside) + tl.load(y + index, mask=inside), mask=inside
    )


@triton.jit
def slow_add(x, y, out, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < n
    tl.store(
        out + index, tl.load(x + index, mask=inside) + tl.load(y + index, mask=inside), mask=inside
    )


@triton.jit
def locked(out, n):
    tl.store(out, n)


@triton.jit
def works(out, n):
    tl.store(out, n)


@triton.jit
def works_too(out, n):
    tl.store(out, n)


@triton.jit
def greedy(out, n):
    tl.store(out, n)


@triton.jit
def fails(out, n):
    tl.store(out, n)
