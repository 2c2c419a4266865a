"""Lightning's Trainer and Fabric on the device, beside the CPU. Run once a rank, or alone."""

from __future__ import annotations

import os
import pickle
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


def in_a_spawned_process(fabric: lightning.Fabric) -> tuple[str, str, list[float]]:
    total = fabric.all_reduce(
        torch.ones(2, device=fabric.device) + fabric.global_rank, reduce_op="sum"
    )
    return fabric.device.type, torch.distributed.get_backend(), total.tolist()


def spawned() -> None:
    fabric = lightning.Fabric(accelerator="flagos", devices=2, strategy="ddp_spawn")
    device, backend, total = fabric.launch(in_a_spawned_process)
    assert (device, backend) == ("flagos", "flagos")
    assert total == [3.0, 3.0], total
    trainer = lightning.Trainer(
        accelerator="flagos", devices=2, strategy="ddp_spawn", max_epochs=1, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    model = Model()
    before = model.net[0].weight.detach().clone()
    trainer.fit(model, data())
    assert not torch.equal(model.net[0].weight.detach().cpu(), before)
    assert pickle.loads(pickle.dumps(trainer.accelerator)).name() == "flagos"


def choices_that_do_not_name_the_device() -> None:
    for make in (lightning.Fabric, lightning.Trainer):
        with pytest.warns(UserWarning, match='write accelerator="flagos"'):
            made = make(accelerator="auto", devices=1)
        assert made.strategy.root_device.type == "cpu"
        with pytest.raises(Exception, match=r'gpu backend found.*write accelerator="flagos"'):
            make(accelerator="gpu", devices=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            warnings.filterwarnings("ignore", message="(?!.*flagos)")
            make(accelerator="cpu", devices=1)


def groups_of_others() -> None:
    """A process group that an earlier run on the CPU left behind does not serve the device."""
    lightning.Fabric(accelerator="cpu", devices=1, strategy="ddp").launch()
    fabric = lightning.Fabric(accelerator="flagos", devices=1, strategy="ddp")
    refused = (
        r'"gloo", which does not serve flagos. Call torch.distributed.destroy_process_group\(\)'
    )
    with pytest.raises(RuntimeError, match=refused):
        fabric.launch()
    trainer = lightning.Trainer(accelerator="flagos", devices=1, strategy="ddp", logger=False,
                                enable_checkpointing=False, enable_progress_bar=False)  # fmt: skip
    with pytest.raises(RuntimeError, match=refused):
        trainer.fit(Model(), data())
    torch.distributed.destroy_process_group()
    fabric = lightning.Fabric(accelerator="flagos", devices=1, strategy="ddp")
    fabric.launch()
    net = fabric.setup(Model().net)
    fabric.backward(net(torch.ones(1, 8, device=fabric.device)).sum())
    torch.distributed.destroy_process_group()


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
        choices_that_do_not_name_the_device()
        groups_of_others()
        spawned()
    print("lightning passed", file=sys.stderr)


if __name__ == "__main__":
    main()
