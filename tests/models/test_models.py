"""Whole models on the flagos device compute what they compute on the native device, to the last bit.

Both devices run the same kernels, so that a difference comes from the device integration: a wrong stream of
random numbers, an untied weight, another decomposition.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from tests.models.architectures import ARCHITECTURES, QWEN3, Architecture

STEPS = 20
PROMPT_LENGTH = 8
NEW_TOKENS = 24

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

pytestmark = pytest.mark.usefixtures("one_result")


@dataclass
class Observation:
    """The results of a training run, on the CPU."""

    first_logits: Tensor
    losses: Tensor  # [STEPS]
    parameters: dict[str, Tensor]
    buffers: dict[str, Tensor]


def perturb_one_weight(model: nn.Module) -> None:
    """Makes the first weight larger by a thousandth."""
    with torch.no_grad():
        next(model.parameters()).view(-1)[0].mul_(1.001)


def train(architecture: Architecture, device: str, perturbed: bool = False) -> Observation:
    """Trains for STEPS steps on `device` from seed 0, with dropout drawn on that device."""
    torch.manual_seed(0)
    model = architecture.build().to(device)
    if perturbed:
        perturb_one_weight(model)
    optimizer = architecture.optimizer(model)
    drawn = torch.Generator().manual_seed(1)
    batches = [tuple(part.to(device) for part in architecture.batch(drawn)) for _ in range(STEPS)]
    model.eval()
    with torch.no_grad():
        first_logits = architecture.logits(model, batches[0]).cpu()
    model.train()
    torch.manual_seed(2)
    losses = []
    for batch in batches:
        loss = architecture.loss(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return Observation(
        first_logits=first_logits,
        losses=torch.stack(losses).cpu(),
        parameters={name: value.detach().cpu() for name, value in model.named_parameters()},
        buffers={name: value.cpu() for name, value in model.named_buffers()},
    )


def generate(device: str, sample: bool = False, seed: int = 0) -> Tensor:
    """Tokens that a Qwen3 with random weights writes after a prompt: int64 [2, NEW_TOKENS]."""
    torch.manual_seed(seed)
    model = QWEN3.build()
    for parameter in model.parameters():  # ten times wider than usual: tokens that do not repeat
        nn.init.normal_(parameter, std=0.2)
    model = model.to(device).eval()
    prompt = torch.arange(2 * PROMPT_LENGTH).view(2, PROMPT_LENGTH).to(device)
    torch.manual_seed(3)
    written = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NEW_TOKENS,
        do_sample=sample,
    )
    assert written.device.type == device
    return written[:, PROMPT_LENGTH:].cpu()


@pytest.fixture(scope="module", params=ARCHITECTURES, ids=lambda architecture: architecture.name)
def runs(request: pytest.FixtureRequest, native: str) -> tuple[Observation, Observation]:
    """The same training on flagos and on the native device."""
    return train(request.param, "flagos"), train(request.param, native)


def differing(left: dict[str, Tensor], right: dict[str, Tensor]) -> list[str]:
    """Names of the tensors that are not the same bits on both sides."""
    assert left.keys() == right.keys()
    return [name for name, value in left.items() if not torch.equal(value, right[name])]


def test_logits_are_identical(runs: tuple[Observation, Observation]) -> None:
    on_flagos, expected = runs
    assert torch.equal(on_flagos.first_logits, expected.first_logits)


def test_loss_curve_is_identical(runs: tuple[Observation, Observation]) -> None:
    on_flagos, expected = runs
    assert torch.equal(on_flagos.losses, expected.losses)
    assert expected.losses.isfinite().all()


def test_trained_parameters_are_identical(runs: tuple[Observation, Observation]) -> None:
    on_flagos, expected = runs
    assert differing(on_flagos.parameters, expected.parameters) == []
    assert differing(on_flagos.buffers, expected.buffers) == []


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda a: a.name)
def test_the_comparison_notices_one_changed_weight(architecture: Architecture, native: str) -> None:
    perturbed, clean = train(architecture, "flagos", perturbed=True), train(architecture, native)
    assert differing(perturbed.parameters, clean.parameters) != []
    assert not torch.equal(perturbed.losses, clean.losses)


@pytest.mark.parametrize("sample", [False, True], ids=["greedy", "sampled"])
def test_generated_tokens_are_identical(sample: bool, native: str) -> None:
    on_flagos = generate("flagos", sample=sample)
    assert on_flagos.shape == (2, NEW_TOKENS)
    assert len(on_flagos.unique()) > NEW_TOKENS // 2  # not one token over and over
    assert torch.equal(on_flagos, generate(native, sample=sample))


def test_generation_follows_the_weights(native: str) -> None:
    """The control for the test above: other weights write other tokens."""
    assert not torch.equal(generate("flagos"), generate(native, seed=1))


def test_moving_a_model_keeps_tied_weights_tied() -> None:
    model = QWEN3.build().to("flagos")
    head = model.get_parameter("lm_head.weight")
    assert head is model.get_parameter("model.embed_tokens.weight")
    assert head.device.type == "flagos"
