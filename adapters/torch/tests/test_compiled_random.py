"""Random operators in compiled programs: equal seeds, and regions that the backward pass computes again."""

from __future__ import annotations

import pytest
import torch
from torch._inductor import config
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*TypedStorage is deprecated"),
    pytest.mark.needs("generated_code"),
]


@pytest.fixture(scope="module", autouse=True)
def _compiler_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.mktemp("inductor")))
        yield


@pytest.fixture(autouse=True)
def _fresh_compiler():
    torch._dynamo.reset()


REGIONS = {
    "dropout": lambda x: functional.dropout(x, 0.5),
    "normal": lambda x: x * torch.normal(torch.zeros_like(x), torch.ones_like(x)),
    "poisson": lambda x: x * torch.poisson(torch.full_like(x, 5.0)),
    "rand": lambda x: x * torch.rand(8, 8, device=x.device),
    "multinomial": lambda x: x * torch.multinomial(torch.ones(8, 8, device=x.device), 8),
    "rrelu": lambda x: functional.rrelu(-x, training=True),
}
BACKENDS = [("aot_eager", False), ("inductor", False), ("inductor", True)]


@pytest.mark.parametrize(("backend", "fallback"), BACKENDS)
@pytest.mark.parametrize("name", REGIONS)
def test_a_checkpoint_draws_the_same_numbers_again(name, backend, fallback):
    region = REGIONS[name]
    x = (torch.rand(8, 8) + 1).to("flagos").requires_grad_()
    compiled = torch.compile(
        lambda x: checkpoint(region, x, use_reentrant=False), backend=backend, fullgraph=True
    )
    with config.patch(fallback_random=fallback):
        y = compiled(x)
        after = torch.flagos.get_rng_state()
        y.sum().backward()
    torch.testing.assert_close(x.grad * x, y)
    assert torch.equal(after, torch.flagos.get_rng_state())


DRAWS = {
    "dropout": functional.dropout,
    "alpha_dropout": lambda x: functional.alpha_dropout(x, training=True),
    "bernoulli_": lambda x: torch.empty_like(x).bernoulli_(0.3),
    "bernoulli_ of a tensor": lambda x: torch.empty_like(x).bernoulli_(x * 0.3),
    "bernoulli of a probability": lambda x: torch.bernoulli(x, 0.3),
    "rand_like": torch.rand_like,
    "exponential_": lambda x: torch.empty_like(x).exponential_(),
}


@pytest.mark.host
@pytest.mark.parametrize(("backend", "fallback"), BACKENDS)
@pytest.mark.parametrize("name", DRAWS)
def test_equal_seeds_draw_what_the_cpus_compiled_program_draws(name, backend, fallback):
    drawn = []
    for device in ("cpu", "flagos"):
        torch._dynamo.reset()
        x = torch.ones(4, 33, device=device)
        torch.manual_seed(3)
        with config.patch(fallback_random=fallback):
            drawn.append(torch.compile(DRAWS[name], backend=backend)(x).cpu())
    assert torch.equal(*drawn)
