"""nn.Module on the device."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2))


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(lambda m: m.to("flagos"), id="to"),
        pytest.param(lambda m: m.flagos(), id="flagos"),
        pytest.param(lambda m: m.to(torch.randn(1, device="flagos")), id="to tensor"),
        pytest.param(lambda m: m.to("flagos", non_blocking=True), id="non blocking"),
    ],
)
def test_moving_keeps_the_parameters_themselves(move):
    module = model()
    before = list(module.parameters())
    assert move(module) is module
    assert all(a is b for a, b in zip(before, module.parameters(), strict=True))
    assert all(p.device.type == "flagos" and p.is_leaf for p in before)


def test_an_optimizer_made_before_moving_still_trains():
    module = model()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module.to("flagos")
    before = module[0].weight.detach().clone()
    module(torch.randn(3, 6, device="flagos")).sum().backward()
    optimizer.step()
    assert not torch.equal(module[0].weight, before)


def test_tied_weights_stay_tied():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

    tied = Tied().to("flagos")
    assert tied.head.weight is tied.embed.weight
    assert tied.cpu().head.weight is tied.embed.weight


def test_a_tied_model_trains_as_on_the_native_device(native):
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(5, 3)
            self.head = nn.Linear(3, 5, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.embedding(tokens))

    torch.manual_seed(0)
    here = Tied().to(native)
    there = copy.deepcopy(here).to("flagos")
    tokens = torch.tensor([0, 3, 4, 1])
    for model in (here, there):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
        where = model.head.weight.device
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(tokens.to(where)), tokens.to(where)).backward()
            optimizer.step()
    assert torch.equal(here.head.weight.cpu(), there.head.weight.cpu())


def test_moving_works_while_a_graph_holds_the_parameters():
    network = nn.LSTM(3, 3)
    output = network(torch.ones(1, 1, 3))[0]
    network.to("flagos")
    assert all(p.device.type == "flagos" for p in network.parameters())
    del output


def test_a_conversion_of_type_is_torchs_own():
    module = nn.Linear(2, 2).to("flagos")
    weight = module.weight
    assert module.double().weight is weight and weight.dtype == torch.float64


def test_a_dense_tensor_does_not_take_sparse_data():
    x = torch.zeros(2, 2, device="flagos")
    with pytest.raises(RuntimeError, match="incompatible tensor type"):
        x.data = torch.eye(2).to_sparse()


def test_gradients_and_buffers_move_too():
    module = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    module(torch.randn(4, 3)).sum().backward()
    module.to("flagos")
    assert module[0].weight.grad.device.type == "flagos"
    assert module[1].running_mean.device.type == "flagos"


def test_back_to_the_cpu():
    module = model()
    expected = copy.deepcopy(module.state_dict())
    module.to("flagos").to("cpu")
    assert all(torch.equal(v, expected[k]) for k, v in module.state_dict().items())


def test_to_empty():
    with torch.device("meta"):
        module = model()
    assert module.to_empty(device="flagos")[0].weight.device.type == "flagos"


@pytest.mark.needs("native_numbers")
def test_building_on_the_device_gives_the_native_devices_weights(native):
    with torch.device(native):
        expected = model().state_dict()
    with torch.device("flagos"):
        built = model()
    assert all(torch.equal(v.cpu(), expected[k].cpu()) for k, v in built.state_dict().items())


def test_state_dicts_cross_devices():
    here, there = model(), model().to("flagos")
    nn.init.zeros_(there[0].weight)
    there.load_state_dict(here.state_dict())
    assert torch.equal(there[0].weight.cpu(), here[0].weight)


OPTIMIZERS = [
    pytest.param(lambda p: torch.optim.SGD(p, 0.1, momentum=0.9), id="sgd"),
    pytest.param(lambda p: torch.optim.SGD(p, 0.1, foreach=True), id="sgd foreach"),
    pytest.param(lambda p: torch.optim.SGD(p, 0.1, fused=True), id="sgd fused"),
    pytest.param(lambda p: torch.optim.Adam(p, 0.01), id="adam"),
    pytest.param(lambda p: torch.optim.Adam(p, 0.01, fused=True), id="adam fused"),
    pytest.param(lambda p: torch.optim.AdamW(p, 0.01, foreach=True), id="adamw foreach"),
    pytest.param(lambda p: torch.optim.RMSprop(p, 0.01), id="rmsprop"),
]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_training_follows_the_native_device(make, native):
    torch.manual_seed(1)
    x, y = torch.randn(16, 6), torch.randn(16, 2)
    weights = {}
    for device in (native, "flagos"):
        module = model().to(device)
        optimizer = make(module.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.mse_loss(module(x.to(device)), y.to(device)).backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
        weights[device] = module[0].weight.detach().cpu()
    torch.testing.assert_close(weights["flagos"], weights[native], rtol=1e-6, atol=1e-7)


def test_optimizer_state_moves_with_its_parameters():
    module = model().to("flagos")
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.randn(2, 6, device="flagos")).sum().backward()
    optimizer.step()
    other = torch.optim.Adam(module.parameters())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert other.state[module[0].weight]["exp_avg"].device.type == "flagos"


@pytest.mark.usefixtures("onednn_as_the_device")
@pytest.mark.parametrize("cell", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_networks(cell, native):
    torch.manual_seed(0)
    network = cell(4, 5, num_layers=2, batch_first=True)
    x = torch.randn(3, 7, 4)
    expected, _ = network.to(native)(x.to(native))
    there, _ = network.to("flagos")(x.to("flagos"))
    assert torch.equal(there.cpu(), expected.cpu())


def test_packed_sequences(native):
    packed = nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    there = packed.flagos()
    assert there.is_flagos and there.data.device.type == "flagos"
    network = nn.LSTM(2, 2)
    expected = network.to(native)(packed.to(native))[0].data
    assert torch.equal(network.to("flagos")(there)[0].data.cpu(), expected.cpu())


def test_attention_module(native):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    with torch.no_grad():
        expected = layer.to(native)(x.to(native)).cpu()
        assert torch.equal(layer.to("flagos")(x.to("flagos")).cpu(), expected)


def test_module_hooks_see_device_tensors():
    seen = []
    module = model().to("flagos")
    module[0].register_forward_hook(lambda m, i, o: seen.append(o.device.type))
    module[0].register_full_backward_hook(lambda m, i, o: seen.append(o[0].device.type))
    module(torch.randn(2, 6, device="flagos", requires_grad=True)).sum().backward()
    assert seen == ["flagos", "flagos"]


def _trained(device, optimizer, foreach):
    torch.manual_seed(0)
    parameters = [torch.randn(50, 20).to(device).requires_grad_() for _ in range(3)]
    steps = optimizer(parameters, foreach=foreach)
    for _ in range(20):
        steps.zero_grad()
        sum((p**2).sum() + p.sin().sum() for p in parameters).backward()
        steps.step()
    return torch.cat([p.detach().cpu() for p in parameters])


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("optimizer", [torch.optim.NAdam, torch.optim.RAdam, torch.optim.ASGD])
def test_optimizers_agree_where_the_form_is_said(optimizer, foreach, native):
    expected = _trained(native, optimizer, foreach)
    assert torch.equal(_trained("flagos", optimizer, foreach), expected)
    # Where a program says neither, torch takes the foreach form on the device. CUDA gives the same bits in both forms.
    if foreach or native == "cpu":
        assert torch.equal(_trained("flagos", optimizer, None), expected) == foreach
