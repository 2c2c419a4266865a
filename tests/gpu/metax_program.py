"""Programs that tests.gpu.metax runs in processes of their own: `python -m tests.gpu.metax_program WHAT` prints JSON.

`everything` uses the device in each way in which flagos calls its library: operators, streams, a graph, the launcher of
Triton's kernels, an export to another library. `ddp` trains a model under torchrun.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import torch
import triton
import triton.language as tl


@triton.jit
def axpy(y, x, a, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    values = tl.load(y + offsets, inside) + a * tl.load(x + offsets, inside)
    tl.store(y + offsets, values, inside)


def everything() -> dict[str, Any]:
    """What was done; raises where a result is wrong."""
    import torch_fl
    from flagos import _core
    from torch_fl import launcher

    x = torch.randn(1000, device="flagos")
    assert torch.equal((x @ x).cpu(), (x.to("cuda") @ x.to("cuda")).cpu())
    side = torch.Stream("flagos")
    with side:
        doubled = x * 2
    side.synchronize()
    assert torch.equal(doubled, x + x)

    launcher.install()
    y = torch.zeros(1000, device="flagos")
    for _ in range(20):
        axpy[(8,)](y, x, 0.5, 1000, BLOCK=128)
    torch.testing.assert_close(y, 10 * x, rtol=1e-5, atol=1e-5)
    native = launcher.statistics()["native"]
    if not native:
        raise AssertionError(f"no launch was made by flagos: {launcher.statistics()}")

    graph = torch.flagos.graphs.Graph()
    still = torch.zeros(8, device="flagos")
    with torch.flagos.graphs.graph(graph):
        assert torch.flagos.graphs.is_current_stream_capturing()
        still.add_(1)
    assert not torch.flagos.graphs.is_current_stream_capturing()
    for _ in range(3):
        graph.replay()
    assert still.tolist() == [3.0] * 8
    info = _core.vendor_info()
    return {
        "vendor": info["name"],
        "device": torch.flagos.get_device_name(0),
        "launches": native,
        "triton_backend": info["triton_backend"],
        "torch_fl": torch_fl.__version__,
    }


def ddp() -> dict[str, Any]:
    """Losses of 30 steps over all ranks, which every rank has to have."""
    import torch.distributed as dist
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel as DDP

    import torch_fl  # noqa: F401
    from flagos import _core

    rank = int(os.environ["LOCAL_RANK"])
    torch.flagos.set_device(rank)
    dist.init_process_group("flagos")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 8)).to("flagos")
    wrapped = DDP(model, device_ids=[rank])
    optimizer = torch.optim.AdamW(wrapped.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(rank)
    inputs = torch.randn(128, 64, generator=generator).to("flagos")
    targets = torch.randint(8, (128,), generator=generator).to("flagos")
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(wrapped(inputs), targets)
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / dist.get_world_size())
    # What is reduced has to be the same everywhere: the parameters are.
    sums = torch.stack([parameter.double().sum() for parameter in model.parameters()])
    everywhere = [torch.empty_like(sums) for _ in range(dist.get_world_size())]
    dist.all_gather(everywhere, sums)
    if not all(torch.equal(one, sums) for one in everywhere):
        raise AssertionError("the ranks' parameters differ")
    dist.destroy_process_group()
    return {
        "vendor": _core.vendor_info()["name"],
        "rank": rank,
        "first": losses[0],
        "last": losses[-1],
        "losses": losses,
    }


if __name__ == "__main__":
    print(json.dumps({"everything": everything, "ddp": ddp}[sys.argv[1]]()), flush=True)
