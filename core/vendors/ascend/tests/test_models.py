"""Whole models on the simulated chip: no operator falls back, and the numbers are the CPU's within rounding."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import pytest
import torch
from torch import nn

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from tests.models.architectures import QWEN3, RESNET, Architecture

pytestmark = pytest.mark.ascend

STEPS = 6
Fallbacks = Callable[[], dict[str, int]]
Optimizer = Callable[[nn.Module], torch.optim.Optimizer]


def without_dropout(model: nn.Module) -> nn.Module:
    """A chip draws other numbers than the CPU."""
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


def train(
    architecture: Architecture, device: str, optimizer: Optimizer, dtype: torch.dtype | None
) -> list[float]:
    """The losses of STEPS steps from seed 0, with gradients clipped; under autocast in `dtype`."""
    torch.manual_seed(0)
    model = without_dropout(architecture.build()).to(device).train()
    steps = optimizer(model)
    drawn = torch.Generator().manual_seed(1)
    scaler = torch.amp.GradScaler(device, init_scale=1024.0, enabled=dtype is torch.float16)
    losses = []
    for _ in range(STEPS):
        batch = tuple(part.to(device) for part in architecture.batch(drawn))
        with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
            loss = architecture.loss(model, batch)
        steps.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(steps)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(steps)
        scaler.update()
        losses.append(loss.item())
    return losses


def adamw(**how: bool) -> Optimizer:
    return lambda model: torch.optim.AdamW(model.parameters(), lr=1e-3, **how)


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)


@pytest.mark.parametrize(
    ("architecture", "optimizer", "dtype", "tolerance"),
    [
        pytest.param(QWEN3, adamw(foreach=True), None, 2e-6, id="qwen3-foreach"),
        pytest.param(QWEN3, adamw(foreach=False), None, 2e-6, id="qwen3-single"),
        pytest.param(QWEN3, adamw(fused=True), None, 2e-6, id="qwen3-fused"),
        pytest.param(QWEN3, adamw(), torch.bfloat16, 1e-3, id="qwen3-bfloat16"),
        pytest.param(QWEN3, adamw(), torch.float16, 1e-3, id="qwen3-float16"),
        pytest.param(QWEN3, adamw(fused=True), torch.float16, 1e-3, id="qwen3-float16-fused"),
        pytest.param(RESNET, sgd, None, 1e-3, id="resnet"),
    ],
)
def test_training(
    architecture: Architecture,
    optimizer: Optimizer,
    dtype: torch.dtype | None,
    tolerance: float,
    fallbacks: Fallbacks,
) -> None:
    here = train(architecture, "cpu", optimizer, dtype)
    there = train(architecture, "flagos", optimizer, dtype)
    assert fallbacks() == {}
    torch.testing.assert_close(
        torch.tensor(there), torch.tensor(here), rtol=tolerance, atol=tolerance
    )
    # The comparison can fail: the model learns, so that another step has another loss.
    assert abs(here[0] - here[-1]) > 2 * tolerance


@pytest.fixture
def qwen3() -> nn.Module:
    torch.manual_seed(0)
    return QWEN3.build().eval()


def prompt() -> torch.Tensor:
    return torch.randint(0, 200, (2, 8), generator=torch.Generator().manual_seed(2))


def test_greedy_tokens_are_the_cpus(qwen3: nn.Module, fallbacks: Fallbacks) -> None:
    here = qwen3.generate(prompt(), max_new_tokens=16, do_sample=False)
    there = copy.deepcopy(qwen3).to("flagos")
    tokens = there.generate(prompt().to("flagos"), max_new_tokens=16, do_sample=False)
    assert fallbacks() == {}
    assert torch.equal(tokens.cpu(), here)


def test_sampled_tokens_are_likely_ones_and_come_again(
    qwen3: nn.Module, fallbacks: Fallbacks
) -> None:
    """A chip draws its own numbers, so each token is looked for among those that the CPU would draw from."""
    there = copy.deepcopy(qwen3).to("flagos")

    def sample(seed: int) -> torch.Tensor:
        torch.manual_seed(seed)
        how = {"do_sample": True, "top_k": 20, "top_p": 0.9, "temperature": 0.8}
        return there.generate(prompt().to("flagos"), max_new_tokens=16, **how).cpu()

    tokens = sample(3)
    assert fallbacks() == {}
    assert torch.equal(tokens, sample(3))
    assert not torch.equal(tokens, sample(4))
    with torch.no_grad():
        best = qwen3(tokens).logits[:, 7:-1].topk(20).indices
    assert (best == tokens[:, 8:, None]).any(-1).all()


def test_a_fallback_would_be_seen(fallbacks: Fallbacks) -> None:
    """With the types that CANN has the operator for."""
    from torch_fl.aten.routing import explain

    torch.ones(3, dtype=torch.float64, device="flagos").erfinv()
    assert fallbacks() == {"aten::erfinv": 1}
    told = r"fallbacks: \d+, of which the first: .*aclnnErfinv takes no float64 for self, but .*float32"
    assert re.search(told, str(explain("aten::erfinv")))
