"""LayerNorm and RMSNorm against their definitions in float64."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, non_contiguous, tensor, wide
from te_fl.operators import normalization as norm
from te_fl.operators.arguments import has_kernel

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")

SHAPES = [(4, 8), (3, 5, 17), (1, 1), (2, 3, 2, 33), (0, 8)]
EPS = 1e-3


def definition(
    x: torch.Tensor,
    gamma: torch.Tensor,
    beta: torch.Tensor | None,
    zero_centered: bool,
    centre: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean = x.mean(-1, keepdim=True) if centre else torch.zeros_like(x[..., :1])
    r = 1 / torch.sqrt(((x - mean) ** 2).mean(-1, keepdim=True) + EPS)
    y = (x - mean) * r * (gamma + 1 if zero_centered else gamma)
    return (y if beta is None else y + beta), mean.flatten(), r.flatten()


@pytest.mark.parametrize("zero_centered", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["contiguous", "non-contiguous"])
def test_layernorm(
    shape: tuple[int, ...], dtype: torch.dtype, zero_centered: bool, layout: str
) -> None:
    x, gamma, beta, dz = (
        tensor(*s, dtype=dtype, seed=i)
        for i, s in enumerate([shape, shape[-1:], shape[-1:], shape])
    )
    wx, wg, wb = wide(x, True), wide(gamma, True), wide(beta, True)
    y, mean, rsigma = definition(wx, wg, wb, zero_centered, True)
    given = non_contiguous(x) if layout == "non-contiguous" else x
    got, mu, rs = norm.layernorm_fwd(given, gamma, beta, EPS, None, None, None, 0, zero_centered)
    assert got.dtype == dtype and mu.dtype == rs.dtype == torch.float32
    assert agrees(got, y) and agrees(mu, mean) and agrees(rs, rsigma)
    expected = torch.autograd.grad(y, (wx, wg, wb), wide(dz))
    gradients = norm.layernorm_bwd(dz, given, mu, rs, gamma, 0, zero_centered)
    for gradient, right in zip(gradients, expected, strict=True):
        assert gradient.dtype == dtype and agrees(gradient, right)


@pytest.mark.parametrize("zero_centered", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", ["contiguous", "non-contiguous"])
def test_rmsnorm(
    shape: tuple[int, ...], dtype: torch.dtype, zero_centered: bool, layout: str
) -> None:
    x, gamma, dz, add = (
        tensor(*s, dtype=dtype, seed=i) for i, s in enumerate([shape, shape[-1:], shape, shape])
    )
    wx, wg = wide(x, True), wide(gamma, True)
    y, _, rsigma = definition(wx, wg, None, zero_centered, False)
    given = non_contiguous(x) if layout == "non-contiguous" else x
    got, nothing, rs = norm.rmsnorm_fwd(given, gamma, EPS, None, None, None, 0, zero_centered)
    assert nothing is None and got.dtype == dtype and rs.dtype == torch.float32
    assert agrees(got, y) and agrees(rs, rsigma)
    dx, dgamma = torch.autograd.grad(y, (wx, wg), wide(dz))
    plain = norm.rmsnorm_bwd(dz, given, rs, gamma, 0, zero_centered)
    assert agrees(plain[0], dx) and agrees(plain[1], dgamma)
    added = norm.rmsnorm_bwd_add(dz, given, add, rs, gamma, 0, zero_centered)
    assert agrees(added[0], dx + wide(add)) and agrees(added[1], dgamma)


def test_the_comparison_notices_a_wrong_gamma() -> None:
    x, gamma = tensor(4, 8), tensor(8, seed=1)
    y, _, _ = definition(wide(x), wide(gamma), None, False, False)
    assert not agrees(norm.rmsnorm_fwd(x, gamma, EPS, None, None, None, 0, True)[0], y)
    assert not agrees(norm.rmsnorm_fwd(x, gamma, 2 * EPS + 0.1, None, None, None, 0, False)[0], y)


def test_layernorm_without_bias() -> None:
    x, gamma = tensor(4, 8), tensor(8, seed=1)
    y, _, _ = definition(wide(x), wide(gamma), None, False, True)
    assert agrees(norm.layernorm_fwd(x, gamma, None, EPS)[0], y)


@pytest.mark.parametrize("native", [False, True])
def test_the_output_has_the_dtype_that_either_enumeration_asks_for(native: bool) -> None:
    # The native enumeration of TransformerEngine is no int: it has a name and a value.
    otype = SimpleNamespace(name="kBFloat16", value=6) if native else 6
    y, _, _ = norm.rmsnorm_fwd(tensor(4, 8), tensor(8), EPS, None, None, otype, 0, False)
    assert y.dtype == torch.bfloat16


def test_an_output_that_is_given_is_written() -> None:
    x, gamma, out = tensor(4, 8), tensor(8), torch.empty(4, 8)
    y, _, _ = norm.rmsnorm_fwd(x, gamma, EPS, out, None, None, 0, False)
    assert y is out and agrees(out, definition(wide(x), wide(gamma), None, False, False)[0])


def test_backward_takes_statistics_of_any_shape_and_the_trailing_eps_of_2_9() -> None:
    x, gamma, dy = tensor(2, 3, 8), tensor(8), tensor(2, 3, 8, seed=2)
    _, _, rs = norm.rmsnorm_fwd(x, gamma, EPS)
    flat = norm.rmsnorm_bwd(dy, x, rs, gamma, 0, False, EPS)
    shaped = norm.rmsnorm_bwd(dy, x, rs.view(2, 3), gamma, 0, False)
    assert torch.equal(flat[0], shaped[0]) and torch.equal(flat[1], shaped[1])


@pytest.mark.parametrize("implementation", ["default.flagos_rs"], indirect=True)
def test_fused_kernels_are_taken_where_the_dispatcher_has_them() -> None:
    fused, cuda = norm._FUSED, SimpleNamespace(device=torch.device("cuda"))
    assert has_kernel(fused, cuda)  # type: ignore[arg-type]
    assert not has_kernel(fused, torch.empty(1)) and has_kernel("aten::mm", torch.empty(1))
    assert not has_kernel("aten::mm.dtype", torch.empty(1))


def test_the_names_of_2_9() -> None:
    x, gamma, dz = tensor(2, 8), tensor(8), tensor(2, 8, seed=2)
    _, _, r = norm.rmsnorm_fwd(x, gamma, EPS)
    _, mu, s = norm.layernorm_fwd(x, gamma, None, EPS)
    for old, new in (
        (norm.rmsnorm_bwd(dy=dz, x=x, rsigma=r, gamma=gamma), norm.rmsnorm_bwd(dz, x, r, gamma)),
        (
            norm.layernorm_bwd(dy=dz, x=x, mu=mu, rsigma=s, gamma=gamma),
            norm.layernorm_bwd(dz, x, mu, s, gamma),
        ),
    ):
        assert all(torch.equal(a, b) for a, b in zip(old, new, strict=True))


@pytest.mark.parametrize("shape", [(1,), (4, 8), (7,)])
def test_a_gamma_that_would_broadcast_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"gamma must have the shape \(8,\)"):
        norm.rmsnorm_fwd(tensor(4, 8), tensor(*shape), EPS)
