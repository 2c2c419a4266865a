"""Random numbers."""

from __future__ import annotations

import copy
import pickle
import threading

import pytest
import torch
from torch import flagos


def draw(device: str = "flagos") -> torch.Tensor:
    return torch.randn(5, device=device).cpu()


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize(
    "sample",
    [
        pytest.param(lambda d: torch.rand(7, device=d), id="rand"),
        pytest.param(lambda d: torch.randn(7, device=d), id="randn"),
        pytest.param(lambda d: torch.randint(100, (7,), device=d), id="randint"),
        pytest.param(lambda d: torch.randperm(17, device=d), id="randperm"),
        pytest.param(lambda d: torch.empty(7, device=d).exponential_(), id="exponential"),
        pytest.param(lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)), id="bernoulli"),
        pytest.param(lambda d: torch.multinomial(torch.ones(9, device=d), 4), id="multinomial"),
        pytest.param(lambda d: torch.nn.functional.dropout(torch.ones(9, device=d)), id="dropout"),
    ],
)
def test_a_seed_gives_the_numbers_of_the_native_device(sample, native):
    torch.manual_seed(3)
    expected = sample(native).cpu()
    torch.manual_seed(3)
    assert torch.equal(sample("flagos").cpu(), expected)


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
@pytest.mark.parametrize("inference", [False, True], ids=["gradients", "inference"])
def test_dropout_of_any_share_is_that_of_the_native_device(dtype, inference, native):
    source = torch.randn(33, 7, generator=torch.Generator().manual_seed(1)).to(dtype)
    for percent in (0, 1, 7, 10, 13, 30, 33, 50, 77, 90, 99, 100):
        seen = []
        for device in native, "flagos":
            x = source.to(device).requires_grad_(not inference)
            torch.manual_seed(percent)
            with torch.inference_mode(inference):
                out = torch.nn.functional.dropout(x, percent / 100)
            grads = [] if inference else torch.autograd.grad(out.square().sum(), x)
            seen.append([each.detach().cpu() for each in (out, *grads)])
        assert all(torch.equal(a, b) for a, b in zip(*seen, strict=True)), percent


@pytest.mark.parametrize("seed", [flagos.manual_seed, flagos.manual_seed_all, torch.manual_seed])
def test_seeding_repeats_the_numbers(seed):
    seed(11)
    first = draw()
    seed(11)
    assert torch.equal(draw(), first)
    assert flagos.initial_seed() == 11


@pytest.mark.parametrize("seed", [flagos.seed, flagos.seed_all])
def test_seeding_from_entropy_does_not(seed):
    seed()
    first = draw()
    seed()
    assert not torch.equal(draw(), first)


def test_state_round_trip():
    state = flagos.get_rng_state()
    assert state.device.type == "cpu" and state.dtype == torch.uint8
    first = draw()
    flagos.set_rng_state(state)
    assert torch.equal(draw(), first)


def test_states_of_all_devices():
    states = flagos.get_rng_state_all()
    assert len(states) == flagos.device_count() == len(flagos.default_generators)
    first = draw()
    flagos.set_rng_state_all(states)
    assert torch.equal(draw(), first)


def test_fork_rng():
    torch.manual_seed(0)
    with torch.random.fork_rng(devices=[0], device_type="flagos"):
        draw()
    after = draw()
    torch.manual_seed(0)
    assert torch.equal(draw(), after)


@pytest.mark.needs("native_numbers")
def test_a_generator_of_its_own(native):
    generator = torch.Generator(device="flagos").manual_seed(5)
    assert generator.device == torch.device("flagos", 0)
    first = torch.randn(3, device="flagos", generator=generator)
    again = torch.Generator(device="flagos").manual_seed(5)
    assert torch.equal(torch.randn(3, device="flagos", generator=again), first)
    theirs = torch.Generator(device=native).manual_seed(5)
    assert torch.equal(torch.randn(3, device=native, generator=theirs).cpu(), first.cpu())


def test_a_generator_of_its_own_does_not_move_the_default_one():
    torch.manual_seed(1)
    expected = draw()
    torch.manual_seed(1)
    torch.randn(3, device="flagos", generator=torch.Generator(device="flagos"))
    assert torch.equal(draw(), expected)


def test_generator_state_round_trip():
    generator = torch.Generator(device="flagos").manual_seed(5)
    copy = generator.clone_state()
    other = torch.Generator(device="flagos")
    other.set_state(generator.get_state())
    draws = [torch.rand(4, device="flagos", generator=g) for g in (generator, copy, other)]
    assert torch.equal(draws[0], draws[1]) and torch.equal(draws[0], draws[2])


def test_a_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="generator"):
        torch.randn(3, device="flagos", generator=torch.Generator())


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda g: pickle.loads(pickle.dumps(g))])
def test_a_generator_can_be_copied_and_sent(copied):
    generator = torch.Generator(device="flagos").manual_seed(3)
    torch.rand(5, device="flagos", generator=generator)
    other = copied(generator)
    assert other.device == generator.device and other.initial_seed() == 3
    ours, theirs = (torch.rand(5, device="flagos", generator=g) for g in (generator, other))
    assert torch.equal(ours, theirs)


@pytest.mark.skipif(
    not hasattr(torch.Generator, "philox_state"), reason="generators are asked since torch 2.14"
)
def test_the_state_of_philox_is_refused_as_on_the_cpu():
    for device in ("cpu", "flagos"):
        with pytest.raises(NotImplementedError, match="philox_state is not supported"):
            torch.Generator(device).philox_state(4)


def test_a_shared_generator_is_not_seeded_in_the_middle_of_a_draw():
    generator = torch.Generator(device="flagos")

    def block() -> bytes:
        return torch.rand(4000, device="flagos", generator=generator).cpu().numpy().tobytes()

    generator.manual_seed(5)
    whole = {block() for _ in range(400)}
    generator.manual_seed(5)
    drawn: list[bytes] = []
    thread = threading.Thread(target=lambda: drawn.extend(block() for _ in range(400)))
    thread.start()
    while thread.is_alive():
        generator.manual_seed(5)
    thread.join()
    assert not set(drawn) - whole
