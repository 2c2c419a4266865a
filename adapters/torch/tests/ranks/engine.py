"""The engine of a vendor's library, on a device, or over a simulated library and the host vendor's streams.

The simulated library's work is queued, so that everything about streams, events and futures is as on a
device. Run once a rank, with FLAGOS_COMM_ENGINE and FLAGOS_COMM_LIBRARY where it is simulated.
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

from flagos import _core
from torch_fl import distributed

DEVICE = "flagos"


def simulated() -> "ctypes.CDLL | None":
    """The simulated library, which the engine opens too, told of the streams; none on a device."""
    if "FLAGOS_COMM_LIBRARY" not in os.environ:
        return None
    library = ctypes.CDLL(os.environ["FLAGOS_COMM_LIBRARY"])
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    library.simulated_use_core.argtypes = [ctypes.c_void_p]
    library.simulated_use_core(pointer(_core.api_capsule(), b"flagos.FlagosApi"))
    return library


def filled(rank: int, size: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(0, 4, (size,), generator=generator).to(dtype)


def collectives(engine: str) -> None:
    rank, n = dist.get_rank(), dist.get_world_size()
    for dtype in (
        torch.float32,
        torch.bfloat16,
        torch.int32,
        torch.float64,
        torch.bool,
        torch.int8 if engine == "hccl" else torch.uint8,  # HCCL reduces no uint8
    ):
        for size in (1, 37, 10_001):
            inputs = [filled(r, size, dtype) for r in range(n)]
            mine = inputs[rank].to(DEVICE)
            stacked = torch.stack(inputs)
            for asynchronous in (False, True):
                for op, expected in {
                    dist.ReduceOp.SUM: stacked.any(0) if dtype == torch.bool else stacked.sum(0),
                    dist.ReduceOp.MAX: stacked.amax(0),
                    dist.ReduceOp.MIN: stacked.amin(0),
                }.items():
                    x = mine.clone()
                    work = dist.all_reduce(x, op, async_op=asynchronous)
                    if work is not None:
                        work.wait()
                    assert torch.equal(x.cpu(), expected.to(dtype)), (engine, op, dtype, size)
            if dtype.is_floating_point:
                x = mine.clone()
                dist.all_reduce(x, dist.ReduceOp.AVG)
                assert torch.equal(x.cpu(), (stacked.sum(0) / n).to(dtype)), engine
                x = mine.clone()
                dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
                assert torch.equal(x.cpu(), (stacked.sum(0) * 0.5).to(dtype)), engine
            gathered = [torch.empty_like(mine) for _ in range(n)]
            dist.all_gather(gathered, mine)
            assert all(torch.equal(gathered[r].cpu(), inputs[r]) for r in range(n))
            whole = torch.empty(size * n, dtype=dtype, device=DEVICE)
            dist.all_gather_into_tensor(whole, mine)
            assert torch.equal(whole.cpu(), torch.cat(inputs))
            if dtype != torch.bool:
                out = torch.empty_like(mine)
                dist.reduce_scatter_tensor(out, whole)
                assert torch.equal(out.cpu(), (inputs[rank] * n).to(dtype))
                if dtype.is_floating_point:
                    dist.reduce_scatter_tensor(out, whole, dist._make_nccl_premul_sum(0.5))
                    assert torch.equal(out.cpu(), (inputs[rank] * (n * 0.5)).to(dtype)), engine
                dist.reduce_scatter(out, [part.clone() for part in whole.chunk(n)])
                assert torch.equal(out.cpu(), (inputs[rank] * n).to(dtype))
            for root in range(n):
                x = mine.clone()
                dist.broadcast(x, root)
                assert torch.equal(x.cpu(), inputs[root])
                x = mine.clone()
                dist.reduce(x, root, dist.ReduceOp.MAX)
                assert rank != root or torch.equal(x.cpu(), stacked.amax(0))
                dist.gather(mine, gathered if rank == root else None, root)
                assert rank != root or torch.equal(gathered[1].cpu(), inputs[1])
                x = torch.empty_like(mine)
                dist.scatter(x, list(whole.chunk(n)) if rank == root else None, root)
                assert torch.equal(x.cpu(), inputs[rank])
            out = torch.empty_like(whole)
            dist.all_to_all_single(out, torch.cat([mine] * n))
            assert torch.equal(out.cpu(), torch.cat(inputs))
            strided = torch.zeros(size, 2, dtype=dtype, device=DEVICE)
            strided[:, 0] = mine
            dist.all_reduce(strided[:, 0], dist.ReduceOp.MAX, async_op=True).wait()
            assert torch.equal(strided[:, 0].cpu(), stacked.amax(0)) and not strided[:, 1].any()
            peer_right, peer_left = (rank + 1) % n, (rank - 1) % n
            x = torch.empty_like(mine)
            for work in dist.batch_isend_irecv(
                [dist.P2POp(dist.isend, mine, peer_right), dist.P2POp(dist.irecv, x, peer_left)]
            ):
                work.wait()
            assert torch.equal(x.cpu(), inputs[peer_left])
            # Two of the ranks only.
            if rank == 0:
                dist.send(mine, 1)
            elif rank == 1:
                dist.recv(x, 0)
                assert torch.equal(x.cpu(), inputs[0])
    xs = [torch.full((n_,), float(rank), device=DEVICE) for n_ in (1, 500)]
    dist.all_reduce_coalesced(xs)
    assert all(bool((x == sum(range(n))).all()) for x in xs)
    dist.barrier()


def child_may_destroy_the_group() -> None:
    """A forked child has no watchdog, and ends without it; the parent's group stays as it is."""
    child = os.fork()
    if child == 0:
        dist.destroy_process_group()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    x = torch.ones(5, device=DEVICE)
    dist.all_reduce(x)
    assert x.tolist() == [dist.get_world_size()] * 5


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Linear(24, 24) for _ in range(6)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def gradients(hook=None) -> float:
    """How far DDP's gradients are from those of the whole batch, at most, over several steps."""
    rank, n = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    reference = Net().to(DEVICE)
    model = Net().to(DEVICE)
    model.load_state_dict(reference.state_dict())
    parallel = DDP(model, bucket_cap_mb=0.002)
    if hook is not None:
        parallel.register_comm_hook(None, hook)
    worst = 0.0
    for step in range(5):
        x = torch.randn(n * 4, 24, generator=torch.Generator().manual_seed(step)).to(DEVICE)
        for each, part in ((reference, x), (parallel, x.chunk(n)[rank])):
            each.zero_grad()
            loss = each(part).square().mean()
            if each is parallel:
                keep_busy()
            loss.backward()
        for a, b in zip(model.parameters(), reference.parameters(), strict=True):
            assert a.grad is not None and b.grad is not None
            worst = max(worst, float((a.grad - b.grad).abs().max()))
    return worst


def on_the_compute_stream(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """The control: completes its future on the stream of the gradients, as a wrong plugin would."""
    buffer = bucket.buffer().div_(dist.get_world_size())
    unawaited.append(dist.all_reduce(buffer, async_op=True))
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(buffer)
    return future


unawaited: list[dist.Work] = []
large: list[torch.Tensor] = []


def keep_busy() -> None:
    """Work on the communication stream that the next calls have to wait for. Simulated ones are late anyway."""
    if torch.flagos.get_device_properties().vendor == "host":
        return
    if not large:
        large.append(torch.zeros(256 << 20, dtype=torch.uint8, device=DEVICE))
    unawaited.extend(dist.all_reduce(large[0], async_op=True) for _ in range(20))


def main() -> None:
    library = simulated()
    what = sys.argv[1]
    distributed.init_process_group("flagos")
    if what == "collectives":
        collectives(os.environ.get("FLAGOS_COMM_ENGINE", "the device's"))
    else:
        right = gradients()
        assert right < 1e-6, f"gradients are {right} off with a delayed communication stream"
        wrong = gradients(on_the_compute_stream)
        assert wrong > 1e-3, f"the race was not seen: only {wrong} off"
        for work in unawaited:
            work.wait()
    torch.flagos.synchronize()
    if library is not None:
        child_may_destroy_the_group()
    assert library is None or library.simulated_misuses() == 0
    dist.destroy_process_group()
    assert library is None or library.simulated_misuses() == 0, "while the group was taken down"
    print("well")


if __name__ == "__main__":
    main()
