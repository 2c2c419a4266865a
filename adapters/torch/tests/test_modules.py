"""Modules keep their parameters' identity across devices, as they do between the CPU and CUDA."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.anyplatform


class Tied(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(5, 3)
        self.head = torch.nn.Linear(3, 5, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.embedding(tokens))


def test_tied_weights_stay_tied() -> None:
    model = Tied().to("flagos")
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.device.type == "flagos"


def test_tied_weights_stay_tied_on_the_way_back() -> None:
    model = Tied().to("flagos").cpu()
    assert model.head.weight is model.embedding.weight
    assert model.head.weight.device.type == "cpu"


def test_an_optimizer_made_before_the_move_trains_the_moved_model() -> None:
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.flagos()
    before = model.weight.detach().cpu().clone()
    model(torch.ones(2, 3, device="flagos")).sum().backward()
    optimizer.step()
    assert not torch.equal(model.weight.detach().cpu(), before)


def test_a_tied_model_trains_as_on_the_cpu() -> None:
    torch.manual_seed(0)
    on_cpu = Tied()
    on_flagos = Tied()
    on_flagos.load_state_dict(on_cpu.state_dict())
    on_flagos.to("flagos")
    tokens = torch.tensor([0, 3, 4, 1])
    for model in (on_cpu, on_flagos):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        where = next(model.parameters()).device
        for _ in range(3):
            optimizer.zero_grad()
            logits = model(tokens.to(where))
            torch.nn.functional.cross_entropy(logits, tokens.to(where)).backward()
            optimizer.step()
    assert torch.equal(on_cpu.head.weight, on_flagos.head.weight.cpu())


def test_other_conversions_do_not_swap() -> None:
    """Control: the switch is off outside the crossing, and a conversion of type keeps torch's way."""
    model = torch.nn.Linear(2, 2).double()
    assert model.weight.dtype == torch.float64
    assert not torch.__future__.get_swap_module_params_on_conversion()


def test_gradients_move_with_their_parameters() -> None:
    model = torch.nn.Linear(2, 2)
    model(torch.ones(1, 2)).sum().backward()
    model.to("flagos")
    assert model.weight.grad is not None
    assert model.weight.grad.device.type == "flagos"
