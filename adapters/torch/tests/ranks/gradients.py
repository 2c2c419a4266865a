"""Gradients of two ranks on devices of a vendor's library beside those of one process on the CPU. Run once a rank."""

from __future__ import annotations

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from torch_fl import distributed
from torch_fl.native import native

STEPS = 4
BATCH = 8


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Embedding(11, 8), nn.LayerNorm(8), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)
    )


def loss_of(model: nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    return model(tokens).square().mean()


def gradient_of(parameter: torch.Tensor) -> torch.Tensor:
    gradient = parameter.grad
    assert gradient is not None and gradient.device.type == "flagos"
    return (gradient.full_tensor() if isinstance(gradient, DTensor) else gradient).cpu()


def compare(model: nn.Module, parameters: list[nn.Parameter]) -> None:
    """Train both, and compare all gradients of every step."""
    here = net()
    ours = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    theirs = torch.optim.SGD(here.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        tokens = torch.arange(step, step + BATCH * 5).remainder(11).reshape(BATCH, 5)
        mine = tokens.chunk(dist.get_world_size())[dist.get_rank()].to("flagos")
        ours.zero_grad()
        theirs.zero_grad()
        loss_of(model, mine).backward()
        loss_of(here, tokens).backward()
        for ours_now, theirs_now in zip(parameters, here.parameters(), strict=True):
            torch.testing.assert_close(gradient_of(ours_now), theirs_now.grad)
            assert theirs_now.grad is not None and theirs_now.grad.abs().max() > 0
        ours.step()
        theirs.step()


def main() -> None:
    distributed.init_process_group("flagos")
    torch.set_num_threads(1)
    assert native().vendor == sys.argv[1]
    assert torch.flagos.current_device() == dist.get_rank()  # each rank has a chip of its own
    model = net().to("flagos")
    compare(DistributedDataParallel(model), list(model.parameters()))
    model = net().to("flagos")
    for layer in model:
        if list(layer.parameters()):
            fully_shard(layer)
    fully_shard(model)
    compare(model, list(model.parameters()))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
