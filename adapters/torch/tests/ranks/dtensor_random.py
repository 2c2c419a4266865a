"""DTensor's random operators beside the same calls on one device, for several placements. Run once a rank."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
from torch.nn import functional as F

OPERATORS = {
    "normal_": lambda x, generator: x.clone().normal_(generator=generator),
    "uniform_": lambda x, generator: x.clone().uniform_(-1, 2, generator=generator),
    "bernoulli_": lambda x, generator: x.clone().bernoulli_(0.3, generator=generator),
    "bernoulli": lambda x, generator: torch.bernoulli(x, generator=generator),
    "rand_like": lambda x, generator: torch.rand_like(x),
    "randn_like": lambda x, generator: torch.randn_like(x),
    "randint_like": lambda x, generator: torch.randint_like(x, 100),
    "dropout": lambda x, generator: F.dropout(x, 0.4),
    "kaiming_uniform_": lambda x, generator: nn.init.kaiming_uniform_(
        x.clone(), generator=generator
    ),
    "trunc_normal_": lambda x, generator: nn.init.trunc_normal_(x.clone(), generator=generator),
    "transposed": lambda x, generator: x.t().clone().normal_(generator=generator),
}


def agrees(operator, whole, mesh, placements, *, own_generator):
    """Whether two results in a row of a DTensor are those of one device."""
    results = []
    for x in (whole, distribute_tensor(whole, mesh, placements, src_data_rank=None)):
        torch.manual_seed(7)
        generator = torch.Generator("flagos").manual_seed(5) if own_generator else None
        results.append([operator(x, generator) for _ in range(2)])
    oracle, distributed = results
    return all(torch.equal(a, b.full_tensor()) for a, b in zip(oracle, distributed, strict=True))


def check_two_dimensions(mesh, expected):
    """FSDP over tensor parallelism splits one dimension twice."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(8, 6))
    parallelize_module(model, mesh["model"], {"0": ColwiseParallel()})
    fully_shard(model, mesh=mesh["data"])
    model.to_empty(device="flagos")
    torch.manual_seed(11)
    model[0].reset_parameters()
    assert torch.equal(model[0].weight.full_tensor(), expected.weight)
    assert torch.equal(model[0].bias.full_tensor(), expected.bias)


def main() -> None:
    torch.flagos.set_device(0)
    dist.init_process_group("flagos")
    size = dist.get_world_size()
    mesh = init_device_mesh("flagos", (size,))
    meshes = {mesh: ([Replicate()], [Shard(0)], [Shard(1)])}
    if size == 4:
        square = init_device_mesh("flagos", (2, 2), mesh_dim_names=("data", "model"))
        meshes[square] = ([Shard(0), Shard(0)], [Shard(0), Shard(1)], [Replicate(), Shard(1)])
    torch.manual_seed(3)
    whole = torch.rand(9, 22, device="flagos")  # no size is a multiple of the ranks
    wrong = [
        (name, placements, own_generator)
        for name, operator in OPERATORS.items()
        for over, choices in meshes.items()
        for placements in choices
        for own_generator in (False, True)
        if not agrees(operator, whole, over, placements, own_generator=own_generator)
    ]
    assert not wrong, wrong

    torch.manual_seed(11)
    expected = nn.Linear(8, 6, device="flagos")
    with torch.device("meta"):
        sharded = nn.Linear(8, 6)
    fully_shard(sharded, mesh=mesh)
    sharded.to_empty(device="flagos")
    torch.manual_seed(11)
    sharded.reset_parameters()
    assert torch.equal(sharded.weight.full_tensor(), expected.weight)
    assert torch.equal(sharded.bias.full_tensor(), expected.bias)

    if size == 4:
        check_two_dimensions(square, expected)

    torch.manual_seed(13)
    made = torch.distributed.tensor.rand(9, 22, device_mesh=mesh, placements=[Shard(0)])
    torch.manual_seed(13)
    assert torch.equal(made.full_tensor(), torch.rand(9, 22, device="flagos"))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
