"""DataLoader: pinned memory and worker processes."""

from __future__ import annotations

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

DATA = TensorDataset(torch.arange(32.0).reshape(16, 2), torch.arange(16))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin_memory", [False, True])
def test_batches_reach_the_device(workers, pin_memory):
    torch.flagos.init()
    loader = DataLoader(
        DATA,
        batch_size=4,
        num_workers=workers,
        pin_memory=pin_memory,
        multiprocessing_context="forkserver" if workers else None,
    )
    total = torch.zeros((), device="flagos")
    for x, y in loader:
        assert x.is_pinned() == y.is_pinned() == pin_memory
        total += x.to("flagos", non_blocking=True).sum()
    assert total.item() == DATA.tensors[0].sum().item()


def test_forked_workers_that_stay_on_the_cpu_work_after_the_device_was_used():
    torch.ones(1, device="flagos").sum().item()
    loader = DataLoader(
        DATA, batch_size=8, num_workers=2, pin_memory=True, multiprocessing_context="fork"
    )
    assert sum(x.to("flagos").sum().item() for x, _ in loader) == DATA.tensors[0].sum().item()


def test_nested_batches_are_pinned():
    loader = DataLoader([{"x": torch.ones(2), "y": [torch.zeros(1)]}] * 2, pin_memory=True)
    batch = next(iter(loader))
    assert batch["x"].is_pinned() and batch["y"][0].is_pinned()


def test_a_generator_of_the_device_shuffles():
    generator = torch.Generator(device="flagos").manual_seed(0)
    order = torch.randperm(8, device="flagos", generator=generator)
    assert sorted(order.tolist()) == list(range(8))


@pytest.mark.host
def test_pinning_leaves_autograd_its_threads(run_python) -> None:
    done = run_python(
        """
        import torch, torch_fl
        torch.set_num_threads(2)
        seen = []
        class Seen(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()
            @staticmethod
            def backward(ctx, gradient):
                seen.append(torch.get_num_threads())
                return gradient
        data = torch.utils.data.TensorDataset(torch.ones(4, 3))
        for x, in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True, num_workers=1):
            Seen.apply(x.to("flagos").requires_grad_()).sum().backward()
        print(seen)
        """,
        fresh=True,
    )
    assert done.stdout == "[2, 2]\n"
