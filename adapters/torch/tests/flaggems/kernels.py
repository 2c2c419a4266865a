"""A kernel that is wrong."""

# No `annotations` from the future: Triton reads them as objects.
import os
import signal
from pathlib import Path

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value / (1 + tl.exp(-value)), mask=at < n - 1)


def half_written(x: torch.Tensor) -> torch.Tensor:
    """silu of all elements but the last."""
    y = torch.zeros_like(x)
    _silu[(triton.cdiv(x.numel(), 16),)](x, y, x.numel(), BLOCK=16)
    return y


@triton.jit
def _doubled(x, y, n, beyond, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    tl.store(y + at, value + value, mask=at < n + beyond)


def _neg(x: torch.Tensor, beyond: int) -> torch.Tensor:
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    given = x.contiguous()
    _doubled[(triton.cdiv(x.numel() + 1, 64),)](given, y, x.numel(), beyond, BLOCK=64)
    return torch.empty_like(x).copy_(y.mul_(-0.5))


def negated(x: torch.Tensor) -> torch.Tensor:
    """What it should be."""
    return _neg(x, 0)


def written_beyond(x: torch.Tensor) -> torch.Tensor:
    """One element more than there is."""
    return _neg(x, 1)


@triton.jit
def _summed(x, y, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


def _sum(x: torch.Tensor, beyond: int) -> torch.Tensor:
    y = torch.empty((), dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(x.numel() + 1)
    _summed[(1,)](x, y, x.numel() + beyond, BLOCK=block)
    return y


def summed(x: torch.Tensor) -> torch.Tensor:
    """What it should be."""
    return _sum(x.contiguous(), 0)


def read_beyond(x: torch.Tensor) -> torch.Tensor:
    """With the element after the last."""
    return _sum(x.contiguous(), 1)


def unwritten(x: torch.Tensor) -> torch.Tensor:
    """With memory that nobody wrote."""
    return negated(x) + 0 * torch.empty_like(x)


def writes_its_argument(x: torch.Tensor) -> torch.Tensor:
    """And puts it back, but for the first element."""
    y = negated(x)
    x.flatten()[0] = 3
    return y


@triton.autotune(configs=[triton.Config({"BLOCK": 32}), triton.Config({"BLOCK": 64})], key=["n"])
@triton.jit
def _tuned(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n)
    if BLOCK == 64:
        value = value + 1
    tl.store(y + at, -value, mask=at < n)


def wrong_in_one_configuration(x: torch.Tensor) -> torch.Tensor:
    """The second."""
    y = torch.empty_like(x)
    _tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y


def wrong_when_large(x: torch.Tensor) -> torch.Tensor:
    """From 512 rows on."""
    return negated(x) + (x.shape[0] >= 512)


def dies_when_large(x: torch.Tensor) -> torch.Tensor:
    """As by an illegal access, from 512 rows on."""
    if x.shape[0] >= 512:
        os.kill(os.getpid(), signal.SIGSEGV)
    return negated(x)


def dies(x: torch.Tensor) -> torch.Tensor:
    """At any size of two rows and more."""
    if x.shape[0] > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return negated(x)


def without_memory(x: torch.Tensor) -> torch.Tensor:
    """Finds no memory."""
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")


def without_memory_once(x: torch.Tensor) -> torch.Tensor:
    """Finds no memory for the first call, of which a file in the working folder tells."""
    report = Path("without_memory_once")
    if not report.exists():
        report.touch()
        raise RuntimeError("CUDA error: out of memory")
    return negated(x)
