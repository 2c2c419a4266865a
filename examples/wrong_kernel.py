"""Has a kernel that is wrong for some calls, for `flagos bisect` to find.

flagos bisect --compare native --state search -- python examples/wrong_kernel.py

A classifier trains with three kernels of its own. One of them forgets the last row, but only where the number
of rows is odd, as that of the last batch is: the program ends without an error, and its losses are wrong from
then on.
"""

import torch
from torch import nn

import flagos


@flagos.implementation("aten::relu")
def relu(x: torch.Tensor) -> torch.Tensor:
    return x.clamp_min(0)


@flagos.implementation("aten::threshold_backward")
def threshold_backward(grad: torch.Tensor, x: torch.Tensor, threshold: float) -> torch.Tensor:
    out = torch.where(x > threshold, grad, 0)
    if len(out) % 2:
        out[-1] = 0  # the mistake: pairs of rows are computed, and nobody computes the last
    return out


@flagos.implementation("aten::mm")
def mm(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.mm(a, b)  # within an implementation, the native kernel


def main() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(41, 8).to("flagos"), torch.arange(41).to("flagos") % 3
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).to("flagos")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for batch in torch.arange(41).split(16):  # 16, 16 and 9 rows
        rows = batch.to("flagos")
        for _ in range(2):
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            torch.flagos.mark("loss", loss)  # what the runs of a search are compared by
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(f"loss {loss.item():.2f}")


if __name__ == "__main__":
    main()
