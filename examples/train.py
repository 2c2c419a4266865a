"""Trains a small network on whatever this machine has: a chip, or no chip at all.

python examples/train.py

The program names one device, "flagos". Which vendor is behind it is decided when it runs, and `FLAGOS_VENDOR`
decides it by hand. The data and the first weights are drawn on the CPU, so that they are the same on every
chip.
"""

import torch
from torch import nn

import flagos

DEVICE = torch.device("flagos")


def spirals(points: int = 256) -> tuple[torch.Tensor, torch.Tensor]:
    """Two spirals that wind around each other, and which of the two a point belongs to."""
    label = torch.arange(points) % 2
    turn = torch.linspace(0.5, 2.5, points) * torch.pi
    angle = turn + label * torch.pi
    noise = 0.02 * torch.randn(points, 2)
    return torch.stack([angle.cos(), angle.sin()], 1) * turn[:, None] / 8 + noise, label


def main() -> None:
    torch.manual_seed(0)
    points, labels = (part.to(DEVICE) for part in spirals())
    model = nn.Sequential(
        nn.Linear(2, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 2)
    )
    model.to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    print(f"training on {torch.flagos.get_device_name()}")
    for step in range(301):
        scores = model(points)
        loss = nn.functional.cross_entropy(scores, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            right = (scores.argmax(1) == labels).float().mean()
            print(f"step {step:3d}  loss {loss.item():.2f}  right {right.item():.0%}")

    fell_back = sum(operator["fallbacks"] for operator in flagos.counters().values())
    print(f"{fell_back} calls fell back to the CPU")


if __name__ == "__main__":
    main()
