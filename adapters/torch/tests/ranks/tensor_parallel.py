"""A block of a language model under tensor parallelism, compiled by the backend of the argument. Run once a rank.

Inductor fuses collectives with products where torch lets it, as asynchronous tensor parallelism does.
"""

from __future__ import annotations

import copy
import sys
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.distributed import _symmetric_memory as symmetric_memory
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional as F
from torch.torch_version import TorchVersion

BACKEND = sys.argv[1]
HEADS, WIDTH, INNER = 4, 32, 64


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))

    def forward(self, x):
        batch, sequence, _ = x.shape
        q, k, v = (
            layer(x).view(batch, sequence, HEADS, WIDTH // HEADS).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).reshape(batch, sequence, WIDTH))


class FeedForward(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(WIDTH, INNER, bias=False)
        self.up = nn.Linear(WIDTH, INNER, bias=False)
        self.down = nn.Linear(INNER, WIDTH, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.attention = nn.RMSNorm(WIDTH), Attention()
        self.between, self.forward_part = nn.RMSNorm(WIDTH), FeedForward()

    def forward(self, x):
        x = x + self.attention(self.before(x))
        return x + self.forward_part(self.between(x))


def parallelized(block, mesh):
    """The sequence is split between the layers, heads and inner width within them."""
    gathered = PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),))
    heads = ColwiseParallel(use_local_output=False)  # the attention is DTensor's
    scattered = RowwiseParallel(output_layouts=Shard(1), use_local_output=False)
    plan = {
        "before": SequenceParallel(),
        "between": SequenceParallel(),
        "attention": gathered,
        **{f"attention.{name}": heads for name in "qkv"},
        "attention.o": scattered,
        "forward_part": gathered,
        "forward_part.gate": ColwiseParallel(),
        "forward_part.up": ColwiseParallel(),
        "forward_part.down": scattered,
    }
    return parallelize_module(block, mesh, plan)


def check_fused(mesh):
    """The operators that Inductor fuses, beside what they stand for."""
    group = mesh.get_group().group_name
    rank, size = dist.get_rank(), dist.get_world_size()
    x, weight = torch.randn(4, 8).to("flagos"), torch.randn(8, 6).to("flagos")
    parts = x.chunk(size)
    _, (product,) = torch.ops.symm_mem.fused_all_gather_matmul(
        parts[rank], [weight], gather_dim=0, group_name=group
    )
    assert torch.equal(product, x @ weight)
    summed = torch.ops.symm_mem.fused_matmul_reduce_scatter(x, weight, "sum", 0, group)
    torch.testing.assert_close(summed, size * (x @ weight).chunk(size)[rank])


def asks_for_fusion(mesh) -> bool:
    """Ask Inductor to fuse in the mesh's group. Returns whether this torch does.

    Before torch 2.15 a group is enabled by hand. Since then Inductor wants an allocator of symmetric memory, which the
    host lacks. Inductor's cache does not know the difference, so it is left out.
    """
    group = mesh.get_group().group_name
    torch._inductor.config._micro_pipeline_tp = True
    torch._inductor.config.force_disable_caches = True
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        symmetric_memory.enable_symm_mem_for_group(group)
    enabled = symmetric_memory.is_symm_mem_enabled_for_group(group)
    assert enabled == (torch.__version__ < TorchVersion("2.15"))
    return enabled


def main() -> None:
    torch.flagos.set_device(0)
    dist.init_process_group("flagos")
    mesh = init_device_mesh("flagos", (dist.get_world_size(),))
    torch.manual_seed(3)
    check_fused(mesh)
    fused = BACKEND == "inductor" and asks_for_fusion(mesh)

    oracle = Block().to("flagos")
    block = torch.compile(parallelized(copy.deepcopy(oracle), mesh), backend=BACKEND)
    x = torch.randn(2, 16, WIDTH).to("flagos")
    expected = oracle(x)
    expected.square().sum().backward()
    part = distribute_tensor(x, mesh, [Shard(1)], src_data_rank=None)
    out, code = run_and_get_code(block, part)
    assert ("symm_mem.fused_all_gather_matmul" in "".join(code)) == fused
    out.square().sum().backward()
    torch.testing.assert_close(out.full_tensor(), expected)
    for ours, theirs in zip(block.parameters(), oracle.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.full_tensor(), theirs.grad, rtol=1e-4, atol=1e-4)
    dist.destroy_process_group()
    print("passed")


if __name__ == "__main__":
    main()
