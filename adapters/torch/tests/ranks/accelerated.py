"""accelerate and transformers' Trainer under a launcher, beside one process. Run once a rank."""

from __future__ import annotations

import copy
import os
import tempfile
from typing import Any

import pytest
import torch
from accelerate import Accelerator, PartialState
from accelerate.state import AcceleratorState
from torch import nn
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH = 6, 8


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4))


def data() -> torch.utils.data.TensorDataset:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(STEPS * BATCH, 16, generator=generator)
    return torch.utils.data.TensorDataset(x, x[:, :4].sin())


def alone() -> list[torch.Tensor]:
    net = model()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    for x, y in torch.utils.data.DataLoader(data(), BATCH):
        nn.functional.mse_loss(net(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    return list(net.parameters())


def trained(precision: str) -> None:
    AcceleratorState._reset_state(True)
    accelerator = Accelerator(mixed_precision=precision)
    size = int(os.environ["WORLD_SIZE"])
    assert accelerator.num_processes == size, accelerator.state
    assert accelerator.device.type == "flagos" and accelerator.device.index is not None
    assert torch.flagos.current_device() == accelerator.device.index
    assert torch.distributed.get_backend() == "flagos"
    net = model()
    loader = torch.utils.data.DataLoader(data(), BATCH // size)
    net, optimizer, loader = accelerator.prepare(
        net, torch.optim.SGD(net.parameters(), 0.1), loader
    )
    assert isinstance(net, DistributedDataParallel)
    losses = []
    for x, y in loader:
        assert x.device == accelerator.device
        with accelerator.autocast():
            output = net(x)
        expected = {"no": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
        assert torch.is_autocast_enabled("flagos") is False and output.dtype == torch.float32
        with accelerator.autocast():
            assert net.module[0](x).dtype == expected
        loss = nn.functional.mse_loss(output, y)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().view(1)).mean().item())
    close = {"rtol": 1e-4, "atol": 1e-5} if precision == "no" else {"rtol": 0.1, "atol": 0.02}
    for ours, theirs in zip(net.parameters(), alone(), strict=True):
        torch.testing.assert_close(ours.detach().cpu(), theirs.detach(), **close)
    assert (accelerator.scaler is not None) == (precision == "fp16")
    with tempfile.TemporaryDirectory() as folder:
        shared = [folder]
        torch.distributed.broadcast_object_list(shared, 0)
        accelerator.save_state(shared[0])
        accelerator.wait_for_everyone()
        kept = copy.deepcopy(accelerator.unwrap_model(net).state_dict())
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.zero_()
        accelerator.load_state(shared[0])
        for name, value in accelerator.unwrap_model(net).state_dict().items():
            assert torch.equal(value, kept[name])
        accelerator.wait_for_everyone()
    total = accelerator.reduce(torch.ones(3, device=accelerator.device), "sum")
    assert total.tolist() == [float(size)] * 3
    Accelerator(mixed_precision=precision)  # once more in the same process


def fully_sharded() -> None:
    from accelerate import FullyShardedDataParallelPlugin

    AcceleratorState._reset_state(True)
    accelerator = Accelerator(
        mixed_precision="bf16", fsdp_plugin=FullyShardedDataParallelPlugin(fsdp_version=2)
    )
    net = model()
    net, optimizer = accelerator.prepare(net, torch.optim.SGD(net.parameters(), 0.1))
    x = torch.ones(4, 16, device=accelerator.device)
    before = float(net(x).detach().square().mean())
    for _ in range(5):
        accelerator.backward(net(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()
    assert float(net(x).square().mean()) < before
    AcceleratorState._reset_state(True)
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2)
    with pytest.raises(NotImplementedError, match="use bf16"):
        Accelerator(mixed_precision="fp16", fsdp_plugin=plugin)
    AcceleratorState._reset_state(True)


def trainer() -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    AcceleratorState._reset_state(True)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
    )
    rows: list[Any] = [{"input_ids": [i % 64] * 8, "labels": [i % 64] * 8} for i in range(32)]
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=4, per_device_train_batch_size=4, report_to=[], save_strategy="no",
            disable_tqdm=True, bf16=True, learning_rate=1e-2,
        )  # fmt: skip
        run = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows)
        assert arguments.device.type == "flagos" and arguments.world_size == int(
            os.environ["WORLD_SIZE"]
        )
        run.train()
    # Every rank has the same weights.
    parameters = torch.cat([p.detach().float().flatten() for p in run.model.parameters()])
    every = PartialState().device
    gathered = [torch.empty_like(parameters) for _ in range(arguments.world_size)]
    torch.distributed.all_gather(gathered, parameters.to(every))
    assert all(torch.equal(gathered[0], other) for other in gathered)


def main() -> None:
    for precision in ("no", "bf16", "fp16"):
        trained(precision)
        print("passed", precision, flush=True)
    trainer()
    print("passed Trainer", flush=True)
    fully_sharded()  # last: accelerate remembers it in the environment
    print("passed FSDP2", flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
