"""Triton's kernels for the launcher's tests: they are compiled, and never run."""

# No `annotations` from the future: Triton reads them as objects.
import triton
import triton.language as tl

SCALE = tl.constexpr(3)


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    tl.store(out + offsets, tl.load(x + offsets, mask) + tl.load(y + offsets, mask), mask)


@triton.jit
def one(out, a):
    tl.store(out, 1)


@triton.jit
def many(out, a, b, c, d, e, f=7, g=None, FLAG: tl.constexpr = False):
    tl.store(out, 1)


@triton.jit(do_not_specialize=["a"], do_not_specialize_on_alignment=["b"])
def unspecialized(out, a, b, c):
    tl.store(out, 1)


@triton.jit
def constant(out, KIND: tl.constexpr):
    tl.store(out, 1)


@triton.jit
def scaled(out, n):
    tl.store(out, n * SCALE)


@triton.jit
def uncached(out, n):
    tl.store(out, n)


@triton.jit
def hooked(out, n):
    tl.store(out, n)


@triton.jit
def i8(out, a: tl.int8):
    tl.store(out, 1)


@triton.jit
def i16(out, a: tl.int16):
    tl.store(out, 1)


@triton.jit
def i32(out, a: tl.int32):
    tl.store(out, 1)


@triton.jit
def i64(out, a: tl.int64):
    tl.store(out, 1)


@triton.jit
def u1(out, a: tl.int1):
    tl.store(out, 1)


@triton.jit
def u8(out, a: tl.uint8):
    tl.store(out, 1)


@triton.jit
def u16(out, a: tl.uint16):
    tl.store(out, 1)


@triton.jit
def u32(out, a: tl.uint32):
    tl.store(out, 1)


@triton.jit
def u64(out, a: tl.uint64):
    tl.store(out, 1)


@triton.jit
def fp16(out, a: tl.float16):
    tl.store(out, 1)


@triton.jit
def bf16(out, a: tl.bfloat16):
    tl.store(out, 1)


@triton.jit
def fp32(out, a: tl.float32):
    tl.store(out, 1)


@triton.jit
def fp64(out, a: tl.float64):
    tl.store(out, 1)


TYPED = {
    kernel.__name__: kernel
    for kernel in (i8, i16, i32, i64, u1, u8, u16, u32, u64, fp16, bf16, fp32, fp64)
}


@triton.jit
def described(source, out):
    tl.store(out, tl.sum(tl.sum(source.load([0, 0]), 0), 0))
