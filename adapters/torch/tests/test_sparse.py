"""Sparse layouts."""

from __future__ import annotations

import pytest
import torch

LAYOUTS = [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc]


def dense() -> torch.Tensor:
    return torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_there_and_back(layout):
    there = dense().to("flagos").to_sparse(layout=layout)
    assert there.layout == layout and there.device.type == "flagos"
    assert torch.equal(there.to_dense().cpu(), dense())


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_moving_a_sparse_tensor(layout):
    here = dense().to_sparse(layout=layout)
    there = here.to("flagos")
    assert there.layout == layout and there.values().device.type == "flagos"
    assert torch.equal(there.cpu().to_dense(), dense())


def test_building_from_parts():
    indices = torch.tensor([[0, 1, 1], [1, 0, 2]], device="flagos")
    values = torch.tensor([2.0, 3.0, 4.0], device="flagos")
    there = torch.sparse_coo_tensor(indices, values, (3, 3)).coalesce()
    assert there.device.type == "flagos" and there.is_coalesced()
    assert torch.equal(there.to_dense().cpu(), dense())
    compressed = torch.sparse_csr_tensor(
        torch.tensor([0, 1, 3, 3], device="flagos"),
        torch.tensor([1, 0, 2], device="flagos"),
        values,
    )
    assert torch.equal(compressed.to_dense().cpu(), dense())


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=str)
@pytest.mark.parametrize(
    "compute",
    [
        pytest.param(lambda s, d: s @ d, id="matmul"),
        pytest.param(lambda s, d: torch.addmm(d, s, d), id="addmm"),
        pytest.param(lambda s, d: (s * 2).to_dense(), id="scale"),
        pytest.param(lambda s, d: (s + s).to_dense(), id="add"),
        pytest.param(lambda s, d: s.neg().to_dense(), id="neg"),
        pytest.param(lambda s, d: s.values().sum(), id="values"),
    ],
)
def test_operators(compute, layout):
    expected = compute(dense().to_sparse(layout=layout), dense())
    there = compute(dense().to("flagos").to_sparse(layout=layout), dense().to("flagos"))
    assert there.device.type == "flagos"
    assert torch.equal(there.cpu(), expected)


def test_sparse_sum_and_softmax(native):
    here, there = dense().to(native).to_sparse(), dense().to("flagos").to_sparse()
    for compute in (
        lambda s: torch.sparse.sum(s, 0).to_dense(),
        lambda s: torch.sparse.softmax(s, 1).to_dense(),
        lambda s: s.transpose(0, 1).coalesce().to_dense(),
    ):
        assert torch.equal(compute(there).cpu(), compute(here).cpu())


def test_gradients_of_an_embedding_may_be_sparse():
    table = torch.nn.Embedding(5, 2, sparse=True).to("flagos")
    table(torch.tensor([1, 1, 3], device="flagos")).sum().backward()
    gradient = table.weight.grad
    assert gradient.is_sparse and gradient.device.type == "flagos"
    assert gradient.to_dense()[1].tolist() == [2, 2]
    optimizer = torch.optim.SparseAdam(table.parameters())
    optimizer.step()


def test_backward_through_a_sparse_product():
    s = dense().to("flagos").to_sparse().requires_grad_()
    d = dense().to("flagos").requires_grad_()
    torch.sparse.mm(s, d).sum().backward()
    assert d.grad.device.type == "flagos" and s.grad.layout == torch.sparse_coo


def test_nested_tensors_are_jagged_views():
    nested = torch.nested.nested_tensor(
        [torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged, device="flagos"
    )
    assert nested.device.type == "flagos"
    assert (nested * 2).values().sum().item() == 18
