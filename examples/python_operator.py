"""Writes an operator in Python, registers it, and sees when it serves.

python examples/python_operator.py

An implementation is a function with the arguments of the operator. It may decline a call, which the native
kernel then serves; that is counted, and nothing is silent. Gradients are torch's: `aten::silu_backward` is an
operator of its own.
"""

import torch
from torch.nn.functional import silu

import flagos


@flagos.implementation("aten::silu")
def my_silu(x: torch.Tensor) -> torch.Tensor:
    """x·σ(x). The operators that it calls run on the native kernels."""
    if x.dtype == torch.float64:
        raise flagos.UnsupportedError("no float64")
    return x * torch.sigmoid(x)


def main() -> None:
    print(flagos.explain("aten::silu"))
    x = torch.linspace(-4, 4, 9, device="flagos", requires_grad=True)
    y = silu(x)
    y.sum().backward()
    reference = x.detach().cpu().requires_grad_()
    silu(reference).sum().backward()
    torch.testing.assert_close(y, silu(reference), check_device=False)
    torch.testing.assert_close(x.grad, reference.grad, check_device=False)
    print("as on the CPU, and so is the gradient")

    with flagos.route({"aten::silu": "vendor"}):  # the native kernel, for a region
        silu(x)
    print(f"before a call is declined: {flagos.counters()['aten::silu']}")
    silu(x.double())
    print(f"after it:                  {flagos.counters()['aten::silu']}")

    try:
        with flagos.strict():  # a fallback is an error here
            silu(x.double())
    except flagos.FlagosError as refused:
        print(f"strict: {refused}")


if __name__ == "__main__":
    main()
