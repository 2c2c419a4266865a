"""Trains with FSDP2: each process keeps a part of every parameter, and gathers a layer when it computes.

torchrun --nproc-per-node=2 examples/fsdp2.py

The shards are DTensors over a mesh of flagos devices. The checkpoint at the end is written by all processes,
each its own part, and is read back.
"""

import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from torch_fl import distributed


def main() -> None:
    distributed.init_process_group("auto")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    device = torch.device("flagos", torch.flagos.current_device())
    mesh = init_device_mesh("flagos", (ranks,))

    torch.manual_seed(0)
    model = nn.Sequential(*(nn.TransformerEncoderLayer(32, 4, 64, 0.0) for _ in range(2)))
    model.to(device)
    whole = sum(p.numel() for p in model.parameters())
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    mine = sum(p.to_local().numel() for p in model.parameters())
    if rank == 0:
        print(f"{whole} parameters, {mine} of them on rank 0 of {ranks}")

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)  # each rank has data of its own
    x = torch.randn(16, 4, 32, generator=generator).to(device)
    for step in range(4):
        loss = nn.functional.mse_loss(model(x), x.flip(0))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        if rank == 0:
            print(f"step {step}  loss {mean.item():.2f}")

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, src=0)
    dcp.save({"model": model.state_dict()}, checkpoint_id=folder[0])
    before = [p.to_local().clone() for p in model.parameters()]
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    state = {"model": model.state_dict()}
    dcp.load(state, checkpoint_id=folder[0])
    model.load_state_dict(state["model"])
    after = [p.to_local() for p in model.parameters()]
    same = all(map(torch.equal, before, after))
    if rank == 0:
        print(f"read back from a checkpoint: {'equal' if same else 'different'}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
