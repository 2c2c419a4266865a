"""Names, nested, sparse and quantized tensors survive the way through native kernels."""

from __future__ import annotations

import pytest
import torch

D = "flagos"

has_names = pytest.mark.skipif(
    not hasattr(torch.Tensor, "names"), reason="torch has no named tensors since 2.13"
)


def named():
    return torch.ones(2, 3, names=("batch", "feature"), device="flagos")


@has_names
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_names_follow_a_reduction():
    assert named().sum("batch").names == ("feature",)


@has_names
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_names_survive_an_in_place_operator():
    assert named().add_(1).names == ("batch", "feature")


@has_names
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_names_survive_a_pointwise_operator():
    assert (named() * 2).names == ("batch", "feature")


MOVES = {
    "to": lambda x: x.to("flagos"),
    "back": lambda x: x.to("flagos").cpu(),
    "another dtype": lambda x: x.to("flagos").double(),
    "a copy of another dtype": lambda x: x.to("flagos").to(torch.float64, copy=True),
    "copy_ to the device": lambda x: torch.zeros(2, 3, device="flagos").copy_(x),
    "copy_ from the device": lambda x: torch.zeros(2, 3).copy_(x.to("flagos")),
}


@has_names
@pytest.mark.filterwarnings("ignore:Named tensors")
@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_names_survive_a_copy(move):
    assert move(torch.ones(2, 3, names=("batch", "feature"))).names == ("batch", "feature")


@has_names
@pytest.mark.filterwarnings("ignore:Named tensors")
def test_a_copy_between_contradicting_names_is_refused_and_writes_nothing():
    to = torch.zeros(2, 3, names=("batch", "time"), device="flagos")
    with pytest.raises(RuntimeError, match="dim 'time' and dim 'feature'"):
        to.copy_(torch.ones(2, 3, names=("batch", "feature")))
    assert to.rename(None).sum().item() == 0


def nested(device):
    rows = [torch.ones(2, 3), torch.full((3, 3), 2.0)]
    return torch.nested.nested_tensor(rows, device=device)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2,
        lambda x: torch.nn.functional.linear(x, torch.ones(4, 3, device=x.device)),
        lambda x: torch.softmax(x, -1),
        lambda x: x.clone(),
    ],
)
def test_nested_tensors_compute_as_on_the_native_device(function, native):
    expected = function(nested(native)).to_padded_tensor(0)
    actual = function(nested("flagos")).to_padded_tensor(0)
    assert actual.device.type == "flagos"
    assert torch.equal(expected.cpu(), actual.cpu())


NESTED_VIEWS = {
    "transpose": lambda x: x.transpose(1, 2),
    "reshape": lambda x: x.reshape(2, -1, 3, 1),
    "detach": lambda x: x.detach(),
    "chunk": lambda x: x.chunk(3, -1),
    "unbind": lambda x: x.unbind(),
    "select": lambda x: x.select(0, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "values": lambda x: x.values(),
}


def dense_parts(value):
    if isinstance(value, (list, tuple)):
        return [part for each in value for part in dense_parts(each)]
    return [part.cpu() for part in (value.unbind() if value.is_nested else (value,))]


@pytest.mark.host
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("view", NESTED_VIEWS.values(), ids=NESTED_VIEWS)
def test_views_of_nested_tensors_are_those_of_the_cpu(view, inference):
    """In inference mode a view of a normal tensor counts versions, and one of an inference tensor does not."""
    normal = {device: nested(device) for device in ("cpu", "flagos")}
    with torch.inference_mode(inference):
        for given in (normal, {device: nested(device) for device in normal}):
            there, here = view(given["cpu"]), view(given["flagos"])
            for one, other in zip(dense_parts(there), dense_parts(here), strict=True):
                assert torch.equal(one, other)
            first = [x[0] if isinstance(x, (list, tuple)) else x for x in (there, here)]
            assert first[0].is_inference() == first[1].is_inference()
            assert first[0]._is_view() == first[1]._is_view()
            if given is normal:
                for x in first:
                    (x.unbind()[0] if x.is_nested else x).mul_(2)
                assert given["cpu"]._version == given["flagos"]._version


@pytest.mark.host
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_sizes_of_nested_tensors_may_be_on_the_cpu():
    dense = torch.arange(24.0).view(2, 3, 4)
    made = torch.nested.as_nested_tensor(dense.to("flagos"))
    assert made.device.type == "flagos" and torch.equal(made.cpu().to_padded_tensor(0), dense)
    sizes = torch.tensor([[2, 4], [3, 4]])
    expected = torch._nested_from_padded(dense, sizes)
    found = torch._nested_from_padded(dense.to("flagos"), sizes)
    for one, other in zip(dense_parts(expected), dense_parts(found), strict=True):
        assert torch.equal(one, other)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_come_back_to_the_cpu():
    parts = nested("flagos").cpu().unbind()
    assert [part.device.type for part in parts] == ["cpu", "cpu"]
    assert torch.equal(parts[1], torch.full((3, 3), 2.0))


@pytest.mark.filterwarnings("ignore")
def test_the_encoder_fast_path_matches_the_native_device(native):
    layer = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2).eval()
    x = torch.randn(2, 4, 8)
    padding = torch.tensor([[False, False, True, True], [False] * 4])
    with torch.no_grad():
        expected, actual = (
            model.to(device)(x.to(device), src_key_padding_mask=padding.to(device)).cpu()
            for device in (native, "flagos")
        )
    assert torch.equal(expected, actual)


def test_quantized_tensors_move_both_ways():
    quantized = torch.quantize_per_tensor(torch.randn(4), 0.1, 0, torch.qint8)
    moved = quantized.to("flagos")
    assert moved.is_quantized
    assert moved.q_scale() == quantized.q_scale()
    assert torch.equal(moved.cpu().int_repr(), quantized.int_repr())


@pytest.mark.needs("cpu_kernels")
def test_quantized_operators_compute_as_on_the_cpu():
    on_cpu = torch.quantize_per_tensor(torch.randn(2, 4), 0.1, 64, torch.quint8)
    on_flagos = on_cpu.to("flagos")
    expected = torch.ops.quantized.add(on_cpu, on_cpu, 0.2, 60)
    actual = torch.ops.quantized.add(on_flagos, on_flagos, 0.2, 60)
    assert actual.device.type == "flagos"
    assert torch.equal(actual.cpu().int_repr(), expected.int_repr())


@pytest.mark.needs("cpu_kernels")
def test_a_quantized_linear_layer_computes_as_on_the_cpu():
    x = torch.quantize_per_tensor(torch.randn(2, 4), 0.1, 64, torch.quint8)
    weight = torch.quantize_per_tensor(torch.randn(3, 4), 0.1, 0, torch.qint8)
    bias = torch.randn(3)
    results = []
    for device in ("cpu", "flagos"):
        packed = torch.ops.quantized.linear_prepack(weight.to(device), bias.to(device))
        results.append(torch.ops.quantized.linear(x.to(device), packed, 0.2, 60))
    assert results[1].device.type == "flagos"
    assert torch.equal(results[1].cpu().int_repr(), results[0].int_repr())


@pytest.mark.parametrize("coalesced", [None, False, True])
def test_a_sparse_tensor_is_made_with_its_invariants_checked(coalesced):
    indices = torch.tensor([[0, 1, 2], [1, 0, 2]], device=D)
    values = torch.arange(1.0, 4.0, device=D)
    made = torch.sparse_coo_tensor(
        indices, values, (3, 3), check_invariants=True, is_coalesced=coalesced
    )
    assert made.is_coalesced() == bool(coalesced) and made.device.type == D
    assert made.to_dense().tolist() == [[0, 1, 0], [2, 0, 0], [0, 0, 3]]


@pytest.mark.parametrize("indices", [[[1, 0]], [[0, 0], [1, 1]], [[0, 1], [0, 3]]])
def test_broken_invariants_of_a_sparse_tensor_are_told_as_on_the_cpu(indices):
    def error(device):
        with pytest.raises(RuntimeError) as caught:
            torch.sparse_coo_tensor(
                torch.tensor(indices, device=device),
                torch.ones(2, device=device),
                (3,) * len(indices),
                check_invariants=True,
                is_coalesced=True,
            )
        return str(caught.value)

    assert error(D) == error("cpu")


@pytest.mark.host
def test_a_kernel_that_fails_tells_its_own_error_whatever_it_left():
    whole = torch.tensor([[0, 2], [3, 0]], device=D).to_sparse()
    out = torch.zeros(2, 2, dtype=torch.int64, device=D).to_sparse()
    with pytest.raises(RuntimeError, match="result type Float can't be cast to"):
        torch.asin(whole, out=out)
    assert out.to_dense().tolist() == [[0, 0], [0, 0]], "it stays as it was"
