"""Tensors, storages and generators of different devices are not mixed in silence."""

from __future__ import annotations

import pytest
import torch

D = "flagos"


def indices():
    return torch.tensor([0, 1], device=D)


def assign(target, index, value):
    target[index] = value


MIXED = {
    "lstm with a CPU input": lambda: torch.nn.LSTM(3, 3).to(D)(torch.zeros(2, 2, 3)),
    "lstm with CPU weights": lambda: torch.nn.LSTM(3, 3)(torch.zeros(2, 2, 3, device=D)),
    "lstm with a CPU state": lambda: torch.nn.LSTM(3, 3).to(D)(
        torch.zeros(2, 2, 3, device=D), (torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))
    ),
    "CPU tensor indexed from flagos": lambda: torch.zeros(3)[indices()],
    "CPU tensor assigned through flagos indices": lambda: assign(
        torch.zeros(3), indices(), torch.ones(2, device=D)
    ),
    "CPU values assigned": lambda: assign(
        torch.zeros(3, device=D), torch.tensor([0, 1]), torch.ones(2)
    ),
    "set_ to a CPU storage": lambda: torch.empty(0, device=D).set_(
        torch.zeros(3).untyped_storage()
    ),
    "set_ to a CPU tensor": lambda: torch.empty(0, device=D).set_(torch.arange(3.0)),
    "in-place on a CPU scalar": lambda: torch.zeros(()).add_(torch.ones((), device=D)),
}


@pytest.mark.parametrize("call", MIXED.values(), ids=MIXED.keys())
def test_mixing_devices_is_torchs_own_error(call):
    with pytest.raises(RuntimeError, match="same device"):
        call()


GENERATORS = {
    "bernoulli": lambda g: torch.bernoulli(torch.ones(3), generator=g),
    "rand": lambda g: torch.rand(3, generator=g),
    "normal_": lambda g: torch.empty(3).normal_(generator=g),
    "randperm": lambda g: torch.randperm(3, generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(3), 1, generator=g),
}


@pytest.mark.host
@pytest.mark.parametrize("call", GENERATORS.values(), ids=GENERATORS.keys())
def test_a_flagos_generator_does_not_serve_the_cpu(call):
    with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator"):
        call(torch.Generator(device=D))


def test_a_cpu_generator_does_not_serve_flagos():
    with pytest.raises(RuntimeError, match="Expected a 'flagos' device type for generator"):
        torch.multinomial(torch.ones(3, device=D), 1, generator=torch.Generator())


def test_what_any_accelerator_allows_is_allowed():
    x = torch.arange(3.0, device=D)
    assert x[torch.tensor([0, 2])].tolist() == [0, 2]  # CPU indices
    x[0] = torch.tensor(5.0)  # a CPU scalar
    assert (x + torch.tensor(1.0)).tolist() == [6, 2, 3]
    targets = [torch.zeros(2)]
    torch._foreach_copy_(targets, [torch.ones(2, device=D)])  # a copy, not arithmetic
    assert targets[0].tolist() == [1, 1]


@pytest.mark.parametrize(("a", "b"), [("cpu", D), (D, "cpu"), (D, D)])
def test_the_sizes_of_a_tensor_serve_another_device(a, b):
    x, other = torch.arange(6.0, device=a).reshape(2, 3).t(), torch.ones(2, 3, device=b)
    assert torch.is_same_size(x.t(), other) and not torch.is_same_size(x, other)
    assert torch.empty(0, device=a).resize_as_(other).shape == (2, 3)
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, 2 * x)
        other.t().copy_(dual)
        tangent = torch.autograd.forward_ad.unpack_dual(other).tangent
        assert tangent.device.type == torch.device(b).type, tangent.device
        assert tangent.tolist() == (2 * x).t().tolist()
