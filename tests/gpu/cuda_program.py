"""A broad CUDA program that never says flagos: what it prints is compared with flagos installed and without.

    python -m tests.gpu.cuda_program             one process, every part
    torchrun ... -m tests.gpu.cuda_program       the distributed parts, one rank per device

Each line starts with the name of its part. `tests.gpu.unnoticed` runs it.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import io
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from typing import Any

import torch

Part = Callable[[Callable[..., None]], None]
_PARTS: dict[str, Part] = {}
_RANK_PARTS: dict[str, Part] = {}


def part(work: Part) -> Part:
    """A part of the program in one process."""
    _PARTS[work.__name__] = work
    return work


def rank_part(work: Part) -> Part:
    """A part that every rank of a group runs."""
    _RANK_PARTS[work.__name__] = work
    return work


def bits(value: Any) -> str:
    """A short digest of a tensor's place, type, shape and bits; of the tensors of a container, in order."""
    if isinstance(value, torch.Tensor):
        plain = value.detach()
        plain = plain.full_tensor() if hasattr(plain, "full_tensor") else plain
        raw = plain.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        digest = hashlib.sha256(raw).hexdigest()[:12]
        return f"{value.device} {value.dtype} {tuple(value.shape)} {digest}"
    if isinstance(value, dict):
        return "; ".join(f"{key}={bits(each)}" for key, each in value.items())
    if isinstance(value, list | tuple):
        return "; ".join(bits(each) for each in value)
    return str(value)


def model() -> torch.nn.Module:
    """A small network, the same each time, on the CPU."""
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(32, 64),
        torch.nn.GELU(),
        torch.nn.LayerNorm(64),
        torch.nn.Linear(64, 8),
    ]
    return torch.nn.Sequential(*layers)


def batch(seed: int = 1) -> torch.Tensor:
    """Input of `model`, on the CPU."""
    return torch.randn(16, 32, generator=torch.Generator().manual_seed(seed))


def train(network: torch.nn.Module, device: Any, steps: int = 3) -> list[str]:
    """The losses of a few steps, as text with all their digits."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-2)
    losses = []
    for step in range(steps):
        loss = network(batch(step).to(device)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item().hex())
    return losses


@part
def accelerator(say: Callable[..., None]) -> None:
    say(torch.accelerator.current_accelerator(), torch.accelerator.is_available())
    say(torch.accelerator.device_count(), torch.accelerator.current_device_index())
    say(torch.get_device_module().__name__, torch._C._get_privateuse1_backend_name())
    say(sorted(name for name in dir(torch.Tensor) if "flagos" in name))
    say(sorted(str(each) for each in torch.profiler.supported_activities()))


@part
def integers(say: Callable[..., None]) -> None:
    say(torch.device(0), torch.ones(2, device=0).device, torch.ones(2).to(0).device)
    say(next(model().to(0).parameters()).device, torch.ones(2).cuda(0).device)
    say(
        torch.empty(1, device=torch.device(0)).device,
        torch.Generator(device=torch.device(0)).device,
    )
    say(
        torch.tensor([1.0], device=0).new_ones(2).device, torch.zeros(1, device="cuda").get_device()
    )
    with torch.device(0):
        say(torch.ones(1).device)


@part
def streams(say: Callable[..., None]) -> None:
    stream, event = torch.Stream(), torch.Event(enable_timing=True)
    say(stream.device, event.device, type(torch.cuda.Stream()).__mro__[1].__name__)
    with torch.cuda.stream(torch.cuda.Stream()) as _:
        x = torch.ones(1000, device="cuda").cumsum(0)
        event.record(torch.cuda.current_stream())
    torch.cuda.current_stream().wait_event(event)
    x.record_stream(torch.cuda.current_stream())
    event.synchronize()
    say(x[-1].item(), event.query(), torch.accelerator.current_stream().device)
    with (
        torch.accelerator.stream(torch.Stream(device=0))
        if hasattr(torch.accelerator, "stream")
        else torch.Stream(0)
    ):
        say(torch.cuda.current_stream() == torch.cuda.default_stream())


@part
def pinned_memory(say: Callable[..., None]) -> None:
    host = torch.arange(1024.0).pin_memory()
    say(
        host.is_pinned(),
        host.untyped_storage().is_pinned(),
        torch.empty(4, pin_memory=True).is_pinned(),
    )
    say(bits(host.to("cuda", non_blocking=True)), torch.ones(1).is_pinned())


class _Numbers(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((2,), float(index))


@part
def loader(say: Callable[..., None]) -> None:
    for workers in (0, 2):
        loaded = torch.utils.data.DataLoader(_Numbers(), 4, num_workers=workers, pin_memory=True)
        say(workers, [(each.is_pinned(), each.to(0).sum().item()) for each in loaded])


@part
def serialization(say: Callable[..., None]) -> None:
    saved = io.BytesIO()
    torch.save({"x": torch.arange(4.0, device="cuda"), "m": model().cuda().state_dict()}, saved)
    for where in (
        None,
        "cpu",
        "cuda",
        "cuda:0",
        torch.device("cuda"),
        torch.device(0),
        {"cuda:0": "cpu"},
    ):
        saved.seek(0)
        say(where, torch.load(saved, map_location=where)["x"].device)
    with contextlib.suppress(RuntimeError):
        saved.seek(0)
        torch.load(saved, map_location="npu")
        say("npu was taken")


@part
def checkpointing(say: Callable[..., None]) -> None:
    from torch.utils.checkpoint import DefaultDeviceType, checkpoint

    say(DefaultDeviceType.get_device_type())
    torch.manual_seed(3)
    network = torch.nn.Sequential(model(), torch.nn.Dropout(0.5)).cuda()
    x = batch().cuda().requires_grad_()
    checkpoint(network, x, use_reentrant=False).sum().backward()
    say(bits(x.grad))


@part
def graphs(say: Callable[..., None]) -> None:
    network, x = model().cuda(), batch().cuda()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        network(x).sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = network(x)
    x.fill_(0.5)
    graph.replay()
    say(bits(y))
    called = torch.cuda.make_graphed_callables(model().cuda(), (batch().cuda().requires_grad_(),))
    z = batch(2).cuda().requires_grad_()
    called(z).sum().backward()
    say(bits(z.grad))


@part
def compiled(say: Callable[..., None]) -> None:
    for mode in ("default", "reduce-overhead"):
        torch._dynamo.reset()
        network = model().cuda()
        say(mode, train(torch.compile(network, mode=mode), "cuda"))
    say(
        sorted(torch._dynamo.device_interface.device_interfaces)
        if hasattr(torch._dynamo, "device_interface")
        else ""
    )


@part
def flex_attention(say: Callable[..., None]) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    mask = create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 128, 128)
    generator = torch.Generator("cuda").manual_seed(0)
    q, k, v = (torch.randn(1, 2, 128, 64, device="cuda", generator=generator) for _ in range(3))
    say(mask.kv_num_blocks.device, bits(flex_attention(q, k, v, block_mask=mask)))
    say(bits(torch.compile(flex_attention)(q, k, v, block_mask=mask)))


@part
def profiler(say: Callable[..., None]) -> None:
    from torch.profiler import ProfilerActivity, profile

    x = torch.randn(64, 64, device="cuda")
    x @ x
    for activities in (
        None,
        [ProfilerActivity.CPU, ProfilerActivity.CUDA],
        [ProfilerActivity.CUDA],
    ):
        with profile(activities=activities) as found:
            x @ x
            torch.cuda.synchronize()
        rows = found.key_averages()
        say(found.use_device, sorted({str(event.device_type) for event in found.events()}))
        say([row.key for row in rows if "mm" in row.key and row.device_time_total > 0][:1])
        say(rows.table(row_limit=1).splitlines()[1].split())


@part
def side_streams(say: Callable[..., None]) -> None:
    network, x = model().cuda(), batch().cuda().requires_grad_()
    with torch.cuda.stream(torch.cuda.Stream()):
        loss = network(x).square().sum()
        loss.backward()
    torch.cuda.synchronize()
    say(bits(x.grad))
    say(
        bits(torch.autograd.grad(network(x).sum(), x)),
        torch.autograd.graph._engine_run_backward.__module__,
    )


@part
def mixed_precision(say: Callable[..., None]) -> None:
    network, scaler = model().cuda(), torch.amp.GradScaler()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    with torch.autocast("cuda", torch.float16):
        loss = network(batch().cuda()).square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    say(loss.item().hex(), scaler.get_scale(), scaler._device, torch.get_autocast_dtype("cuda"))


@part
def random_numbers(say: Callable[..., None]) -> None:
    torch.manual_seed(7)
    say(bits(torch.randn(8, device="cuda")), bits(torch.rand(3)))
    state = torch.cuda.get_rng_state()
    first = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state(state)
    say(torch.equal(first, torch.randn(4, device="cuda")))
    with torch.random.fork_rng():
        torch.randn(1, device="cuda")
    say(bits(torch.randn(2, device="cuda")))


@part
def memory(say: Callable[..., None]) -> None:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    x = torch.empty(1 << 20, device="cuda")
    say(torch.cuda.memory_allocated() - before, torch.accelerator.memory_allocated() - before)
    del x
    say(torch.cuda.memory_allocated() - before, sorted(torch.cuda.memory_stats())[:3])


@part
def exchange(say: Callable[..., None]) -> None:
    x = torch.arange(6.0, device="cuda")
    say(x.__dlpack_device__(), bits(torch.from_dlpack(x)), sorted(x.__cuda_array_interface__))
    say(copy.deepcopy(x).device, x.type(), x.cpu().type(), torch.utils._pytree.tree_map(bits, [x]))


@part
def data_parallel(say: Callable[..., None]) -> None:
    say(bits(torch.nn.DataParallel(model().cuda())(batch().cuda())))


@part
def recurrent(say: Callable[..., None]) -> None:
    torch.manual_seed(0)
    lstm = torch.nn.LSTM(8, 16, 2, batch_first=True).cuda()
    y, _ = lstm(torch.ones(2, 5, 8, device="cuda"))
    y.sum().backward()
    say(bits(y), bits([p.grad for p in lstm.parameters()]))


@part
def nested_and_sparse(say: Callable[..., None]) -> None:
    nested = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], device="cuda")
    say(nested.device, bits(nested.to_padded_tensor(0.0)))
    sparse = torch.eye(4, device="cuda").to_sparse()
    say(sparse.device, bits(sparse @ torch.ones(4, 2, device="cuda")))


@part
def trainer(say: Callable[..., None]) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
    )
    rows = [{"input_ids": [i % 64] * 8, "labels": [i % 64] * 8} for i in range(16)]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            folder, max_steps=3, per_device_train_batch_size=4, report_to=[], bf16=True, logging_steps=1,
            disable_tqdm=True, save_strategy="no",
        )  # fmt: skip
        with contextlib.redirect_stdout(io.StringIO()):
            run = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows)
            run.train()
        say(arguments.device, [each.get("loss") for each in run.state.log_history][:3])
    network = LlamaForCausalLM(config).cuda().eval()
    say(
        network.generate(
            torch.tensor([[1, 2, 3]]).cuda(), max_new_tokens=8, do_sample=False
        ).tolist()
    )


@part
def accelerate_library(say: Callable[..., None]) -> None:
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
    from accelerate.utils import get_max_memory, set_seed

    AcceleratorState._reset_state(reset_partial_state=True)  # the Trainer's, of another precision
    set_seed(0)
    helper = Accelerator(mixed_precision="fp16")
    network, optimizer = helper.prepare(model(), torch.optim.SGD(model().parameters(), 0.1))
    helper.backward(network(batch().to(helper.device)).square().mean())
    say(
        helper.device,
        helper.distributed_type,
        sorted(map(str, get_max_memory())),
        type(optimizer).__name__,
    )


@part
def inference_of_devices(say: Callable[..., None]) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        say(torch.empty(2, device="cuda").device, torch.empty(2, device=0).device)
    exported = torch.export.export(model().cuda(), (batch().cuda(),))
    say(
        sorted(
            {str(node.meta["val"].device) for node in exported.graph.nodes if "val" in node.meta}
        )
    )
    traced = torch.jit.trace(model().cuda(), batch().cuda())
    saved = io.BytesIO()
    torch.jit.save(traced, saved)
    saved.seek(0)
    say(next(torch.jit.load(saved, map_location="cuda:0").parameters()).device)


@part
def multiprocessing(say: Callable[..., None]) -> None:
    context = torch.multiprocessing.get_context("spawn")
    queue, shared = context.Queue(), torch.zeros(4, device="cuda")
    child = context.Process(target=_add_one, args=(shared, queue))
    child.start()
    say(queue.get(timeout=120))
    child.join()
    say(shared.tolist(), child.exitcode)


def _add_one(shared: torch.Tensor, queue: Any) -> None:
    shared.add_(1)
    torch.cuda.synchronize()
    queue.put((str(shared.device), str(torch.accelerator.current_accelerator())))


@rank_part
def process_group(say: Callable[..., None]) -> None:
    import torch.distributed as dist

    say(dist.get_backend(), dist.group.WORLD.bound_device_id, dist.get_backend_config())
    x = torch.full((4,), float(dist.get_rank() + 1), device="cuda")
    dist.all_reduce(x)
    gathered = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, x)
    objects: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(objects, {"rank": 7})
    say(bits(x), bits(gathered), objects)


@rank_part
def ddp(say: Callable[..., None]) -> None:
    network = torch.nn.parallel.DistributedDataParallel(model().cuda())
    say(train(network, "cuda"))


@rank_part
def fsdp1(say: Callable[..., None]) -> None:
    from torch.distributed.fsdp import FullyShardedDataParallel

    network = FullyShardedDataParallel(model().cuda(), device_id=torch.cuda.current_device())
    say(network.compute_device, train(network, "cuda"))


@rank_part
def fsdp2(say: Callable[..., None]) -> None:
    import torch.distributed.checkpoint as dcp
    from torch.distributed.fsdp import fully_shard

    network = model()
    fully_shard(network)
    say(next(network.parameters()).device, train(network, "cuda"))
    with tempfile.TemporaryDirectory() as folder:
        folder = os.environ.get("PROGRAM_FOLDER", folder)
        dcp.save(network.state_dict(), checkpoint_id=folder)
        state = {key: torch.zeros_like(each) for key, each in network.state_dict().items()}
        dcp.load(state, checkpoint_id=folder)
    say(bits(state))


@rank_part
def dtensor(say: Callable[..., None]) -> None:
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cuda", (dist.get_world_size(),))
    x = distribute_tensor(torch.arange(16.0).view(4, 4).cuda(), mesh, [Shard(0)])
    y = (x @ x.redistribute(mesh, [Replicate()])).redistribute(mesh, [Shard(1)])
    say(mesh.device_type, y.placements, bits(y))


@rank_part
def symmetric_memory(say: Callable[..., None]) -> None:
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric

    x = symmetric.empty(256, device="cuda", dtype=torch.float32).fill_(dist.get_rank() + 1)
    handle = symmetric.rendezvous(x, dist.group.WORLD.group_name)
    handle.barrier()
    other = handle.get_buffer((dist.get_rank() + 1) % dist.get_world_size(), (256,), torch.float32)
    total = (x + other).clone()
    handle.barrier()
    say(handle.world_size, bits(total))


def _say(name: str, *values: Any) -> None:
    print(name, *values, flush=True)


def _run(parts: dict[str, Part], wanted: list[str]) -> None:
    for name, work in parts.items():
        if wanted and name not in wanted:
            continue
        torch.manual_seed(0)
        try:
            work(functools.partial(_say, name))
        except Exception as error:  # a failure has to be the same with and without flagos
            _say(
                name,
                "RAISED",
                type(error).__name__,
                str(error).splitlines()[0] if str(error) else "",
            )


def main() -> None:
    """Run the parts named in the arguments, or all."""
    warnings.simplefilter("ignore")
    torch.use_deterministic_algorithms(True, warn_only=True)
    if "RANK" not in os.environ:
        _run(_PARTS, sys.argv[1:])
        return
    import torch.distributed as dist

    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    if dist.get_rank() != 0:
        sys.stdout = io.StringIO()
    _run(_RANK_PARTS, sys.argv[1:])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
