"""Trains with Lightning, on flagos.

python examples/lightning_trainer.py

`import torch` registers the device, and flagos then adds its accelerator to Lightning, under the name
"flagos".
"""

import sys
import warnings

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import torch_fl  # noqa: F401  registers the device on a machine with CUDA, too

try:
    import lightning
except ImportError:
    sys.exit("this example needs Lightning: pip install lightning")


class Regression(lightning.LightningModule):
    """A small network for a function of eight numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 2))
        self.losses: list[torch.Tensor] = []

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], index: int) -> torch.Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self.layers(x), y)
        self.losses.append(loss.detach())
        return loss

    def on_train_epoch_end(self) -> None:
        mean = torch.stack(self.losses).mean()
        print(f"epoch {self.current_epoch}  loss {mean.item():.2f}  on {mean.device}")
        self.losses.clear()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-2)


def main() -> None:
    # Lightning advises to load data with workers, which a few rows do not need.
    warnings.filterwarnings("ignore", message=".*does not have many workers.*")
    torch.manual_seed(0)
    x = torch.randn(256, 8)
    batches = DataLoader(TensorDataset(x, x[:, :2].sin() + x[:, 2:4].abs()), batch_size=32)
    trainer = lightning.Trainer(
        accelerator="flagos", devices=1, max_epochs=3, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(Regression(), batches)


if __name__ == "__main__":
    main()
