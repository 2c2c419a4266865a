"""What an emulated machine runs: the core, the device's import, and three steps of AdamW beside the CPU.

It is alone there, with torch and the portable wheels; so it imports nothing of this repository.
"""

from __future__ import annotations

import platform

from flagos import _core

print(f"core: {_core.vendor_info()['name']} on {platform.machine()}", flush=True)

import torch  # noqa: E402  the core has to be there without it

from torch_fl import _shims  # noqa: E402

STEPS = 3


def train(device: str) -> list[torch.Tensor]:
    """The losses, then the parameters, of a small model after some steps on `device`."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    ).to(device)
    data, labels = torch.randn(8, 16).to(device), torch.randint(4, (8,)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    assert all(value.device.type == device for value in (*losses, *model.parameters()))
    return [value.detach().cpu() for value in (*losses, *model.parameters())]


def main() -> None:
    """Ends with an error where a bit differs."""
    print(f"torch {torch.__version__}: {_shims.shim_for(torch.__version__).name}", flush=True)
    computed, expected = train("flagos"), train("cpu")
    losses = [value.item() for value in computed[:STEPS]]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1], losses
    for mine, native in zip(computed, expected, strict=True):
        assert torch.equal(mine, native), (mine - native).abs().max()
    print(f"AdamW, {STEPS} steps: losses {losses}; {len(computed)} tensors have the CPU's bits")


if __name__ == "__main__":
    main()
