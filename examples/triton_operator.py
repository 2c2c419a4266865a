"""Writes an operator in Triton, registers it, and compares it with the native kernel.

python examples/triton_operator.py

With `native=True` the function gets tensors of torch's own device over the same memory, and calls that repeat
are replayed without Python. On a machine without a chip, Triton's interpreter runs the kernel on the host's
memory.
"""

import os
import sys

import flagos

if flagos.devices()[0]["vendor"] == "host":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import torch

try:
    import triton
    import triton.language as tl
except ImportError:
    sys.exit("this example needs Triton: pip install triton")


@triton.jit
def silu_kernel(x, y, n, BLOCK: tl.constexpr):
    """One block of x·σ(x)."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n).to(tl.float32)
    tl.store(y + at, (value * tl.sigmoid(value)).to(y.dtype.element_ty), mask=at < n)


@flagos.implementation("aten::silu", native=True)
def triton_silu(x: torch.Tensor) -> torch.Tensor:
    """x·σ(x) for what the kernel can read as one row of numbers."""
    if not x.is_contiguous() or not x.is_floating_point():
        raise flagos.UnsupportedError("only contiguous floating-point numbers")
    y = torch.empty_like(x)
    silu_kernel[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), BLOCK=256)
    return y


def main() -> None:
    print(str(flagos.explain("aten::silu")).splitlines()[0])
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.linspace(-4, 4, 1000).to("flagos", dtype)
        ours = torch.nn.functional.silu(x)
        with flagos.route({"aten::silu": "vendor"}):
            native = torch.nn.functional.silu(x)
        torch.testing.assert_close(ours, native)
        print(f"{dtype}: within torch's tolerances of the native kernel")

    torch.nn.functional.silu(torch.ones(4, 6, device="flagos").t())
    print(f"a transposed tensor was declined: {flagos.counters()['aten::silu']}")


if __name__ == "__main__":
    main()
