"""What a reviewer found wrong once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

pytestmark = pytest.mark.ascend

ON = "flagos"


def test_indices_without_elements_write_nothing() -> None:
    x = torch.zeros(3, 3, device=ON)
    one, none = torch.tensor([1], device=ON), torch.tensor([], dtype=torch.long, device=ON)
    x[none, one] = 5.0
    x[torch.zeros(3, dtype=torch.bool, device=ON), one] = 5.0
    x.index_put_((none, one), torch.ones((), device=ON), accumulate=True)
    x[:, none] = 5.0
    x[x > 9] = 5.0
    assert not x.any()


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.eq_(0),
        lambda m: m.ge_(torch.tensor([0.0, 1.0, 2.0]).to(m.device)),
        lambda m: m.logical_and_(torch.tensor([0, 1, 1]).to(m.device)),
        lambda m: m.logical_or_(torch.tensor([0.0, 5.0, 0.0]).to(m.device)),
        lambda m: torch.eq(m, torch.tensor([0, 0, 0]).to(m.device), out=m),
    ],
)
def test_comparisons_in_place_of_booleans(call: Callable[[Tensor], Tensor]) -> None:
    m = torch.tensor([True, False, True])
    here, there = call(m.clone()), call(m.to(ON))
    assert there.dtype == torch.bool and there.cpu().tolist() == here.tolist()


def _shown(row: int) -> Tensor:
    mask = torch.ones(1, 1, 4, 4, dtype=torch.bool)
    mask[:, :, row] = False
    return mask


LEAST = torch.finfo(torch.float32).min
MASKS = {
    "a row of booleans": _shown(0),
    "a row of the least number": torch.zeros(1, 1, 4, 4).masked_fill(~_shown(1), LEAST),
    "a row of minus infinity": torch.zeros(1, 1, 4, 4).masked_fill(~_shown(2), -torch.inf),
    "all but one of minus infinity": torch.eye(4).log(),
    "numbers": torch.linspace(-3, 3, 16).view(4, 4),
}


@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("scale", [None, 1e-3, 4.0])
def test_masks_of_attention(name: str, scale: float | None) -> None:
    """Forward and backward, also of rows of which everything is hidden.

    Beside the CPU in float64, whose own rounding in float32 is another on every processor.
    """
    drawn = torch.Generator().manual_seed(0)
    parts = [torch.randn(1, 2, 4, 8, generator=drawn) for _ in range(3)]
    results = []
    for device, dtype in (("cpu", torch.float64), (ON, torch.float32)):
        leaves = [part.to(device, dtype, copy=True).requires_grad_() for part in parts]
        mask = MASKS[name].to(device)
        mask = mask if mask.dtype == torch.bool else mask.to(dtype)
        out = F.scaled_dot_product_attention(*leaves, attn_mask=mask, scale=scale)
        out.square().sum().backward()
        results.append(
            [each.float().cpu() for each in (out.detach(), *(leaf.grad for leaf in leaves))]
        )
    # Scores round by their size, and a gradient is multiplied by the scale once more.
    atol = 1e-5 * max(1.0, scale or 1.0) ** 2
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=atol)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_uniform_numbers_stay_below_their_end(dtype: torch.dtype) -> None:
    x = torch.rand(1 << 20, device=ON, dtype=dtype)
    assert x.max().item() < 1 and x.min().item() >= 0


@pytest.mark.parametrize(
    "call",
    [
        lambda b: torch.ones(2, device=b.device) - b,
        lambda b: b - 2,
        lambda b: 2 - b,
        lambda b: torch.sign(b.to(torch.complex64)),
    ],
)
def test_what_torch_refuses_is_refused(call: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError):
        call(torch.ones(2, dtype=torch.bool))
    with pytest.raises(RuntimeError):
        call(torch.ones(2, dtype=torch.bool, device=ON))


def test_a_call_that_only_converted_is_computed_by_the_cpu() -> None:
    x = torch.tensor([7, 8], dtype=torch.int16, device=ON)
    assert x.remainder_(torch.tensor([3, 3], dtype=torch.int8, device=ON)).tolist() == [1, 2]
    y = torch.tensor([6], dtype=torch.uint8, device=ON)
    assert y.gcd_(torch.tensor(4)).tolist() == [2]


def test_integers_as_exponents_of_two() -> None:
    """torch's composite of it asks for the device."""
    mantissas, exponents = torch.tensor([1.5, -2, 3]), torch.tensor([1, -2, 3])
    there = mantissas.to(ON).ldexp(exponents.to(ON))
    assert there.tolist() == mantissas.ldexp(exponents).tolist()
    assert there.ldexp_(exponents.to(ON)).tolist() == mantissas.ldexp(2 * exponents).tolist()


def test_integers_are_not_divided_by_the_number_0() -> None:
    x = torch.tensor([7, -8], device=ON)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        torch.div(x, 0, rounding_mode="trunc")
    assert torch.div(x, 2, rounding_mode="trunc").tolist() == [3, -4]
    assert torch.div(x.float(), 0, rounding_mode="trunc").tolist() == [torch.inf, -torch.inf]


def test_devices_are_peers_as_the_runtime_says() -> None:
    reached = torch.flagos.can_device_access_peer
    assert reached(0, 1) and reached(1, 0) and not reached(0, 0)
    with pytest.raises(ValueError, match="no device flagos:9"):
        reached(0, 9)


def test_a_capture_within_a_profile_leaves_it_readable() -> None:
    from torch.profiler import ProfilerActivity, profile

    x = torch.ones(4, 4, device=ON)
    graph = torch.flagos.Graph()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiled:
        x @ x
        with torch.flagos.graph(graph):
            y = x @ x
        graph.replay()
    assert y.sum().item() == 64
    assert "aten::mm" in {row.key for row in profiled.key_averages()}


LOST = """
import torch
from torch.profiler import profile
other = torch.ones(3, device="flagos:1")
try:
    torch.zeros(3, device="flagos")[torch.tensor([7], device="flagos")].cpu()
except RuntimeError:
    print("lost")
try:
    with profile():
        other + other
except RuntimeError as error:
    print("told" if "the device was lost" in str(error) else error)
print((other + other).sum().item())
"""


@pytest.mark.slow
def test_a_profile_beside_a_lost_device_ends() -> None:
    """torch's hooks are taken away, and the process ends as it should."""
    ended = subprocess.run(
        [sys.executable, "-c", LOST], capture_output=True, text=True, timeout=300, check=False
    )
    assert (ended.returncode, ended.stdout.split()) == (0, ["lost", "told", "6.0"]), ended
    assert "RecordFunction" not in ended.stderr
