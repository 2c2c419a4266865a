"""A kernel that is wrong."""

# No `annotations` from the future: Triton reads them as objects.
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
