"""Recurrent layers give the native device's numbers, forward and backward; the CPU's to the last bit."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

LAYERS = {
    "rnn_tanh": lambda **options: nn.RNN(3, 4, **options),
    "rnn_relu": lambda **options: nn.RNN(3, 4, nonlinearity="relu", **options),
    "gru": lambda **options: nn.GRU(3, 4, **options),
    "lstm": lambda **options: nn.LSTM(3, 4, **options),
    "lstm_projected": lambda **options: nn.LSTM(3, 4, proj_size=2, **options),
}


def tensors(output):
    if isinstance(output, torch.Tensor):
        return [output]
    if isinstance(output, PackedSequence):
        return [output.data]
    return [tensor for part in output for tensor in tensors(part)]


def assert_same(actual, expected, native):
    """Every bit is the CPU's; cuDNN adds in an order of its own each time."""
    actual, expected = actual.cpu(), expected.cpu()
    if native == "cpu":
        assert torch.equal(actual, expected)
    else:
        torch.testing.assert_close(actual, expected)


@pytest.mark.usefixtures("onednn_as_the_device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["full", "packed"])
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_match_the_native_device(kind, packed, dtype, native):
    choices = itertools.product([False, True], [1, 2], [False, True], [False, True])
    for bidirectional, num_layers, batch_first, bias in choices:
        torch.manual_seed(0)
        options = {
            "bidirectional": bidirectional,
            "num_layers": num_layers,
            "batch_first": batch_first,
            "bias": bias,
        }
        there = LAYERS[kind](dtype=dtype, **options).to(native)
        on_flagos = copy.deepcopy(there).to("flagos")
        x = torch.randn((3, 5, 3) if batch_first else (5, 3, 3), dtype=dtype)
        results = []
        for layer in (there, on_flagos):
            where = next(layer.parameters()).device
            own = x.clone().to(where).requires_grad_()
            given = pack_padded_sequence(own, [5, 3, 2], batch_first=batch_first) if packed else own
            outputs = tensors(layer(given))
            sum((output**2).sum() for output in outputs).backward()
            gradients = [own.grad, *(parameter.grad for parameter in layer.parameters())]
            results.append([tensor.detach().cpu() for tensor in (*outputs, *gradients)])
        for expected, actual in zip(*results, strict=True):
            assert_same(actual, expected, native)


@pytest.mark.host
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", LAYERS)
def test_layers_of_16_bits_match_in_training_and_inference(kind, dtype):
    """Where the processor can, torch gives LSTMs to oneDNN: of bfloat16 always, of float16 without gradients."""
    for training in (True, False):
        torch.manual_seed(0)
        there = LAYERS[kind](dtype=dtype, num_layers=2, bidirectional=True).train(training)
        on_flagos = copy.deepcopy(there).to("flagos")
        x = torch.randn(5, 3, 3).to(dtype)
        results = []
        for layer in (there, on_flagos):
            with torch.set_grad_enabled(training):
                found = tensors(layer(x.to(next(layer.parameters()).device)))
            if training:
                sum((output.float() ** 2).sum() for output in found).backward()
                found += [parameter.grad for parameter in layer.parameters()]
            results.append([tensor.detach().cpu() for tensor in found])
        for expected, actual in zip(*results, strict=True):
            assert torch.equal(actual, expected)


@pytest.mark.parametrize("cell", [nn.RNNCell, nn.GRUCell, nn.LSTMCell])
def test_cells_match_the_native_device(cell, native):
    there = cell(3, 4).to(native)
    on_flagos = copy.deepcopy(there).to("flagos")
    x = torch.randn(2, 3)
    for expected, actual in zip(
        tensors(there(x.to(native))), tensors(on_flagos(x.to("flagos"))), strict=True
    ):
        assert_same(actual, expected, native)


def test_inference_mode_takes_the_same_path(native):
    there = nn.GRU(3, 4).to(native)
    on_flagos = copy.deepcopy(there).to("flagos")
    x = torch.randn(2, 3, 3)
    with torch.inference_mode():
        assert_same(on_flagos(x.to("flagos"))[0], there(x.to(native))[0], native)


@pytest.mark.host
def test_batch_sizes_on_the_device_are_refused():
    layer = nn.GRU(3, 4).to("flagos")
    sizes = torch.tensor([2, 1], device="flagos")
    with pytest.raises(RuntimeError, match="on the CPU"):
        torch._VF.gru(
            torch.randn(3, 3, device="flagos"),
            sizes,
            torch.zeros(1, 2, 4, device="flagos"),
            list(layer.parameters()),
            True,
            1,
            0.0,
            False,
            False,
        )


@pytest.mark.host
@pytest.mark.parametrize(
    ("name", "gates"), [("gru_cell", 3), ("rnn_tanh_cell", 1), ("lstm_cell", 4)]
)
def test_weights_of_another_size_are_refused_in_torchs_words(name, gates):
    def words(device, batch, features, hidden, rows_ih, rows_hh):
        def ones(*shape):
            return torch.ones(shape, device=device)

        state = ones(*hidden)
        with pytest.raises((RuntimeError, IndexError)) as caught:
            getattr(torch, name)(
                ones(batch, features),
                (state, state) if name == "lstm_cell" else state,
                ones(rows_ih, 3),
                ones(rows_hh, 2),
            )
        return str(caught.value).splitlines()[0]

    for case in (
        (2, 3, (2, 2), gates * 2 + 1, gates * 2),
        (2, 3, (2, 2), gates * 2, gates * 2 + 1),
        (2, 4, (2, 2), gates * 2, gates * 2),
        (2, 3, (3, 2), gates * 2, gates * 2),
        (2, 3, (2, 3), gates * 2, gates * 2),
        (2, 3, (2, 2), 2, 2) if gates > 1 else (2, 3, (2, 2), 1, 1),
    ):
        assert words("flagos", *case) == words("cpu", *case)


@pytest.mark.host
def test_a_layer_with_too_few_rows_is_an_error():
    """torch's own kernel for the CPU reads what is not there."""
    x, state = torch.ones(2, 1, 2, device="flagos"), torch.ones(1, 1, 2, device="flagos")
    weights = [torch.ones(2, 2, device="flagos")] * 2
    with pytest.raises(RuntimeError, match="hidden_size rows"):
        torch.gru(x, state, weights, False, 1, 0.0, False, False, False)
