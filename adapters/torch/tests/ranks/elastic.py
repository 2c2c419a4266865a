"""A training that saves every step, under torchrun. In its first life rank 1 dies in the middle."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

from torch_fl import distributed


def main() -> None:
    folder = Path(sys.argv[1])
    distributed.init_process_group("auto")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 2).to("flagos")
    parallel = DDP(model)
    optimizer = torch.optim.SGD(parallel.parameters(), lr=0.1, momentum=0.9)
    start = 0
    checkpoint = folder / "checkpoint.pt"
    if checkpoint.exists():
        saved = torch.load(checkpoint, map_location="flagos", weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        start = saved["step"]
    for step in range(start, 10):
        generator = torch.Generator().manual_seed(step)
        x = torch.randn(size * 4, 8, generator=generator).chunk(size)[rank].to("flagos")
        parallel(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, folder / "new.pt")
            (folder / "new.pt").rename(checkpoint)
        dist.barrier()
        if step == 4 and rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)
    if rank == 0:
        print("started at", start)
        torch.save(model.state_dict(), folder / "end.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
