"""Trains with DistributedDataParallel: each process has a part of the data, and all have the same gradients.

torchrun --nproc-per-node=2 examples/ddp.py

Without a chip, the processes share the machine's memory. `init_process_group("auto")` takes the device of
`LOCAL_RANK` and the backend `flagos`, and everything else is torch's own.
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from torch_fl import distributed


def data() -> TensorDataset:
    """Points of a plane with a bend in it, the same in each process."""
    x = torch.randn(256, 8, generator=torch.Generator().manual_seed(1))
    return TensorDataset(x, x[:, :2].sin() + x[:, 2:4].abs())


def main() -> None:
    distributed.init_process_group("auto")
    device = torch.device("flagos", torch.flagos.current_device())
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Linear(32, 2)).to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    sampler: DistributedSampler[object] = DistributedSampler(data(), seed=2)
    batches = DataLoader(data(), batch_size=16, sampler=sampler)

    for epoch in range(4):
        sampler.set_epoch(epoch)
        total = torch.zeros((), device=device)
        for x, y in batches:
            loss = nn.functional.mse_loss(parallel(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total, dist.ReduceOp.AVG)
        if dist.get_rank() == 0:
            print(f"epoch {epoch}  loss {total.item() / len(batches):.2f}")

    # Each process has the same parameters, to the last bit.
    mine = nn.utils.parameters_to_vector(model.parameters()).detach()
    first = mine.clone()
    dist.broadcast(first, src=0)
    differ = torch.tensor(int(not torch.equal(mine, first)), device=device)
    dist.all_reduce(differ)
    if dist.get_rank() == 0:
        ranks = dist.get_world_size()
        print(f"{ranks} ranks over {dist.get_backend()}, parameters differ on {differ.item()}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
