"""Trains a layer of TransformerEngine's operators: RMSNorm, a linear layer, SwiGLU and a linear layer.

python examples/te_layer.py

The operators are those of te-fl, called as TransformerEngine calls them, and TransformerEngine is not needed.
Where it is installed, its own layers call the same operators: NVTE_PLUGIN=te_fl python train.py.
"""

import sys
from typing import Any

import torch

try:
    from te_fl.core import get_manager
except ImportError:
    sys.exit("this example needs te-fl: pip install dist/te_fl-*.whl")
EPS = 1e-5
CLOSE = {"rtol": 1e-4, "atol": 1e-4}  # a chip adds up in another order than the CPU
te = get_manager().call  # the plan decides which implementation serves


def product(a: torch.Tensor, b: torch.Tensor, form: str) -> torch.Tensor:
    """op(b)·op(a), row by row, as TransformerEngine names it: T is transposed, N is not."""
    first, second = (letter == "T" for letter in form)
    rest = (None, None, None, None, None, False, None, False, None, 0, False, False)
    result: torch.Tensor = te("generic_gemm", a, first, b, second, *rest)[0]
    return result


class NormMLP(torch.autograd.Function):
    """The layer and its gradient, in TransformerEngine's operators alone."""

    @staticmethod
    def forward(ctx: Any, x: Any, gamma: Any, w1: Any, w2: Any) -> torch.Tensor:
        normed, _, rsigma = te("rmsnorm_fwd", x, gamma, EPS)
        gated = product(w1, normed, "TN")
        active = te("swiglu", gated, None)
        ctx.save_for_backward(x, gamma, w1, w2, normed, rsigma, gated, active)
        return product(w2, active, "TN")

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, ...]:
        x, gamma, w1, w2, normed, rsigma, gated, active = ctx.saved_tensors
        grad = gradients[0].contiguous()
        d_gated = te("dswiglu", product(w2, grad, "NN"), gated, None)
        dx, d_gamma = te("rmsnorm_bwd", product(w1, d_gated, "NN"), x, rsigma, gamma)
        return dx, d_gamma, product(normed, d_gated, "NT"), product(active, grad, "NT")


def main() -> None:
    torch.manual_seed(0)
    drawn = [torch.randn(32, 16), torch.ones(16), torch.randn(64, 16) / 4, torch.randn(16, 32) / 4]
    x, *weights = (part.to("flagos").requires_grad_() for part in drawn)

    # The same layer of torch's operators, on the CPU.
    x_, gamma_, w1_, w2_ = (part.clone().requires_grad_() for part in drawn)
    gate, value = (torch.nn.functional.rms_norm(x_, (16,), gamma_, EPS) @ w1_.t()).chunk(2, -1)
    expected = torch.nn.functional.silu(gate) * value @ w2_.t()
    output = NormMLP.apply(x, *weights)
    torch.testing.assert_close(output.cpu(), expected, **CLOSE)
    output.square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip((x, *weights), (x_, gamma_, w1_, w2_), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, **CLOSE)
    print("the output and every gradient are torch's")

    optimizer = torch.optim.AdamW(weights, lr=1e-2)
    for step in range(61):
        loss = (NormMLP.apply(x.detach(), *weights) - x.detach().roll(1, 0)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"step {step:2d}  loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
