"""Routes one operator to FlagGems' Triton kernel, and shows that it serves.

python examples/flaggems_route.py

Where Triton compiles for the chip, the kernel is compiled. On a machine without one, Triton's interpreter
runs it on the host's memory, which is slow and computes the same.
"""

import os
import sys
from importlib.util import find_spec

import flagos

if flagos.devices()[0]["vendor"] == "host":
    os.environ.setdefault("TRITON_INTERPRET", "1")  # Triton reads it when it is imported

import torch

if find_spec("flag_gems") is None:
    sys.exit("this example needs FlagGems: pip install --no-deps flag_gems==5.0.2 sqlalchemy")


def served_by(operator: str) -> str:
    """The implementation that the plan has for an operator now."""
    return str(flagos.explain(operator)).splitlines()[0]


def main() -> None:
    x = torch.linspace(-4, 4, 1024).to("flagos").requires_grad_()
    print(served_by("aten::silu"))
    native = torch.nn.functional.silu(x)

    # A region of the program. flagos.toml, backends.conf and FLAGOS_OP_silu say the same without a change of it.
    with flagos.route({"aten::silu": "flaggems"}):
        print(served_by("aten::silu"))
        kernel = torch.nn.functional.silu(x)
        (gradient,) = torch.autograd.grad(kernel.sum(), x)

    difference = (kernel - native).abs().max().item()
    print(f"largest difference of the two: {'below 1e-6' if difference < 1e-6 else difference}")
    print(f"the gradient is finite: {bool(gradient.isfinite().all())}")
    print(f"calls: {flagos.counters()['aten::silu']}")


if __name__ == "__main__":
    main()
