"""Lightning's Trainer and Fabric on the device, beside the CPU. Run once a rank, or alone."""

from __future__ import annotations

import os
import sys
import warnings
from typing import Any

import lightning
import pytest
import torch
from torch.nn.functional import mse_loss

import torch_fl  # noqa: F401

RANKS = int(os.environ.get("WORLD_SIZE", "1"))


class Model(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = torch.nn.Sequential(
            torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2)
        )
        self.seen: set[tuple[str, torch.dtype]] = set()

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        x, y = batch
        out = self.net(x)
        self.seen.add((x.device.type, out.dtype))
        return mse_loss(out.float(), y)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def data() -> torch.utils.data.DataLoader:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(32, 8, generator=generator)
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, x[:, :2].sin()), 4)


def trained(accelerator: str, precision: str) -> Model:
    trainer = lightning.Trainer(
        accelerator=accelerator, devices=RANKS, precision=precision, max_epochs=2, logger=False,
        strategy="auto" if RANKS == 1 else "ddp", enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, use_distributed_sampler=True,
    )  # fmt: skip
    model = Model()
    trainer.fit(model, data())
    if RANKS > 1:
        backend = torch.distributed.get_backend()
        assert backend == ("gloo" if accelerator == "cpu" else "flagos"), backend
        torch.distributed.destroy_process_group()
    assert model.seen == {(accelerator, {"16-mixed": torch.float16, "bf16-mixed": torch.bfloat16}.get(
        precision, torch.float32))}, model.seen  # fmt: skip
    return model


def by_fabric() -> None:
    fabric = lightning.Fabric(accelerator="flagos", devices=RANKS, precision="bf16-mixed")
    fabric.launch()
    net = Model().net
    net, optimizer = fabric.setup(net, torch.optim.SGD(net.parameters(), 0.1))
    (loader,) = [fabric.setup_dataloaders(data())]
    for x, y in loader:
        assert x.device == fabric.device and x.device.type == "flagos"
        out = net(x)
        fabric.backward(mse_loss(out, y))
        optimizer.step()
        optimizer.zero_grad()


def refusals() -> None:
    with pytest.raises(ValueError, match="this machine has"):
        lightning.Trainer(accelerator="flagos", devices=99)
    with pytest.raises(ValueError, match="this machine has"):
        lightning.Trainer(accelerator="flagos", devices="0,7")
    with pytest.raises((ValueError, RuntimeError), match="FSDP strategy"):
        lightning.Fabric(accelerator="flagos", strategy="fsdp")


def main() -> None:
    warnings.simplefilter("ignore")
    ours, theirs = trained("flagos", "32-true"), trained("cpu", "32-true")
    for x, y in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(x.detach().cpu(), y.detach())
    for precision in ("bf16-mixed", "16-mixed"):
        for x, y in zip(
            trained("flagos", precision).parameters(), theirs.parameters(), strict=True
        ):
            torch.testing.assert_close(x.detach().cpu(), y.detach(), rtol=0.05, atol=0.02)
    by_fabric()
    if RANKS == 1:
        refusals()
    print("lightning passed", file=sys.stderr)


if __name__ == "__main__":
    main()
