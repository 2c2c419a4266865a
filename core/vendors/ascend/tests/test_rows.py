"""Operators that no sample of torch's databases reaches, and arguments that all of them take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from core.vendors.ascend.tests import simulator

pytestmark = pytest.mark.ascend

Fallbacks = Callable[[], dict[str, int]]


def drawn(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(len(shape) + sum(shape)))


def whole(*shape: int) -> Tensor:
    return torch.randint(1, 9, shape, generator=torch.Generator().manual_seed(sum(shape)))


def operator(name: str) -> Any:
    base, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, base), overload or "default")


X, Y, M, N = drawn(3, 4), drawn(4, 3).t(), whole(3, 4), whole(3, 1)
IMAGE, VOLUME = drawn(1, 2, 4, 5), drawn(1, 2, 3, 4, 5)
LARGE, LARGER = [7, 9], [4, 6, 5]
LIST, OTHERS, NUMBERS = [X, drawn(2)], [Y, drawn(2).cos()], [2.0, 0.5]
PLACES = torch.tensor([[0, 1], [1, 3], [2, 0]])
# Name → arguments. Compared with the CPU.
CALLS: dict[str, tuple[Any, ...]] = {
    "_add_relu.Tensor": (X, Y),
    "bitwise_not": (M,),
    "bitwise_and.Scalar": (M, 3),
    "bitwise_or.Scalar": (M, 3),
    "bitwise_xor.Tensor": (M, N),
    "bitwise_xor.Scalar": (M, 3),
    "fmod.Scalar": (X, 0.7),
    "remainder.Scalar_Tensor": (7, M),
    "gcd": (M, N),
    "xlogy.Scalar_Other": (X.abs(), 2.0),
    "xlogy.Scalar_Self": (2.0, X.abs()),
    "isin.Tensor_Scalar": (M, 3),
    "isin.Scalar_Tensor": (3, M),
    "sort.stable": (M,),
    "fill.Tensor": (X, torch.tensor(2.0)),
    "scatter.reduce": (X, 1, PLACES, Y),
    "scatter.value_reduce": (X, 1, PLACES, 2.0),
    "_native_batch_norm_legit.no_stats": (IMAGE, None, None, True, 0.1, 1e-5),
    "upsample_nearest2d": (IMAGE, LARGE),
    "upsample_nearest2d_backward": (drawn(1, 2, *LARGE), LARGE, IMAGE.shape),
    "upsample_nearest3d": (VOLUME, LARGER),
    "upsample_nearest3d_backward": (drawn(1, 2, *LARGER), LARGER, VOLUME.shape),
    "_upsample_nearest_exact2d": (IMAGE, LARGE),
    "_upsample_nearest_exact2d_backward": (drawn(1, 2, *LARGE), LARGE, IMAGE.shape),
    "_upsample_nearest_exact3d": (VOLUME, LARGER),
    "_upsample_nearest_exact3d_backward": (drawn(1, 2, *LARGER), LARGER, VOLUME.shape),
    "_foreach_addcmul.ScalarList": (LIST, OTHERS, OTHERS, NUMBERS),
    "_foreach_sub.ScalarList": (LIST, NUMBERS),
    "_foreach_pow.ScalarList": ([X.abs(), drawn(2).abs()], NUMBERS),
    "_foreach_maximum.ScalarList": (LIST, NUMBERS),
    "_foreach_minimum.ScalarList": (LIST, NUMBERS),
    "_foreach_mul.Tensor": (LIST, torch.tensor(2.0)),
    "_foreach_div.Tensor": (LIST, torch.tensor(2.0)),
    "_foreach_add.Tensor": (LIST, torch.tensor(2.0)),
}
HOW: dict[str, dict[str, Any]] = {
    "sort.stable": {"stable": True, "dim": 1},
    "scatter.reduce": {"reduce": "add"},
    "scatter.value_reduce": {"reduce": "multiply"},
}


def moved(value: Any, device: str) -> Any:
    """The tensors of a value, which may be in lists, on a device."""
    return tree_map_only(Tensor, lambda each: each.to(device), value)


@pytest.mark.parametrize("name", CALLS)
def test_an_operator_by_itself(name: str, fallbacks: Fallbacks) -> None:
    how = HOW.get(name, {})
    here = operator(name)(*CALLS[name], **how)
    there = operator(name)(*moved(CALLS[name], "flagos"), **how)
    torch.testing.assert_close(moved(there, "cpu"), here)
    assert fallbacks() == {}


SQUARE = drawn(3, 3)
# Operator in place → the function that computes it, and the arguments.
IN_PLACE: dict[str, tuple[str, tuple[Any, ...]]] = {
    "relu_": ("aclnnInplaceRelu", (X,)),
    "hardtanh_": ("aclnnInplaceHardtanh", (X, -0.5, 0.5)),
    "hardswish_": ("aclnnInplaceHardswish", (X,)),
    "clamp_max_": ("aclnnInplaceClampMax", (X, 0.5)),
    "sub_.Scalar": ("aclnnInplaceSubs", (X, 0.5)),
    "floor_divide_.Scalar": ("aclnnInplaceFloorDivides", (M, 2)),
    "fmod_.Scalar": ("aclnnInplaceFmodScalar", (X, 0.7)),
    "remainder_.Scalar": ("aclnnInplaceRemainderTensorScalar", (M, 3)),
    "xlogy_.Scalar_Other": ("aclnnInplaceXLogYScalarOther", (X, 2.0)),
    "cumprod_": ("aclnnCumprod", (X, 1)),
    "scatter_.value": ("aclnnInplaceScatterValue", (X, 1, PLACES, 2.0)),
    "fill_.Tensor": ("aclnnInplaceFillTensor", (X, SQUARE[0, 0])),
    "addmm_": ("aclnnAddmm", (SQUARE, X, X.t(), 2.0, 0.5)),
    "addr_": ("aclnnAddr", (SQUARE, X[:, 0], X[:, 1])),
    "addbmm_": ("aclnnAddbmm", (SQUARE, X[None], X.t()[None])),
    "baddbmm_": ("aclnnBaddbmm", (SQUARE[None], X[None], X.t()[None])),
    **{
        f"bitwise_{name}_.{kind}": (f"aclnnInplaceBitwise{name.title()}{kind}", (M, other))
        for name in ("and", "or", "xor")
        for kind, other in (("Scalar", 3), ("Tensor", N))
    },
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_operator_in_place(name: str, fallbacks: Fallbacks) -> None:
    function, (x, *others) = IN_PLACE[name]
    how = {"beta": others.pop(), "alpha": others.pop()} if name == "addmm_" else {}
    here = operator(name)(x.clone(), *others, **how)
    before = simulator.calls(function) if simulator.is_loaded() else 0
    there = x.clone().to("flagos")
    assert operator(name)(there, *moved(others, "flagos"), **how) is there
    torch.testing.assert_close(there.cpu(), here)
    assert fallbacks() == {}
    assert not simulator.is_loaded() or simulator.calls(function) == before + 1


def test_statistics_of_batch_norm_by_several_devices(fallbacks: Fallbacks) -> None:
    """What SyncBatchNorm is made of, against batch norm of the whole batch."""
    x, weight, bias = drawn(8, 3, 5), drawn(3), drawn(3)
    halves = [half.to("flagos") for half in x.chunk(2)]
    ops = torch.ops.aten
    statistics = [ops.batch_norm_stats(half, 1e-5) for half in halves]
    counts = torch.full((2,), 20.0, device="flagos")
    mean, deviation = ops.batch_norm_gather_stats_with_counts(
        halves[0],
        torch.stack([each[0] for each in statistics]),
        torch.stack([each[1] for each in statistics]),
        None,
        None,
        0.1,
        1e-5,
        counts,
    )
    parts = [
        ops.batch_norm_elemt(half, weight.to("flagos"), bias.to("flagos"), mean, deviation, 1e-5)
        for half in halves
    ]
    expected = torch.nn.functional.batch_norm(x, None, None, weight, bias, True)
    torch.testing.assert_close(torch.cat(parts).cpu(), expected, rtol=1e-4, atol=1e-5)
    assert fallbacks() == {}


def test_values_that_are_filled_in(fallbacks: Fallbacks) -> None:
    x = torch.zeros(3, 3, device="flagos")
    x.fill_(torch.tensor(2.0, device="flagos"))
    assert x.cpu().tolist() == [[2.0] * 3] * 3
    assert x.fill_diagonal_(1.5).diag().cpu().tolist() == [1.5] * 3
    assert fallbacks() == {}


# Name → how the numbers are drawn into a tensor of 20,000, their mean and their deviation.
DISTRIBUTIONS: dict[str, tuple[Callable[[Tensor], Tensor], float, float]] = {
    "uniform_": (lambda x: x.uniform_(-1, 3), 1.0, 4 / 12**0.5),
    "normal_": (lambda x: x.normal_(2, 3), 2.0, 3.0),
    "exponential_": (lambda x: x.exponential_(0.5), 2.0, 2.0),
    "geometric_": (lambda x: x.geometric_(0.25), 4.0, 12**0.5),
    "log_normal_": (lambda x: x.log_normal_(0.0, 0.5), 1.1331, 0.6039),
    "bernoulli_.float": (lambda x: x.bernoulli_(0.3), 0.3, 0.4583),
    "bernoulli_.Tensor": (lambda x: x.bernoulli_(torch.full_like(x, 0.3)), 0.3, 0.4583),
    "bernoulli": (lambda x: torch.bernoulli(torch.full_like(x, 0.3)), 0.3, 0.4583),
    "random_.from": (lambda x: x.random_(2, 12), 6.5, 2.8723),
    "random_.to": (lambda x: x.random_(10), 4.5, 2.8723),
    "normal.Tensor_float": (lambda x: torch.normal(torch.full_like(x, 2.0), 3.0), 2.0, 3.0),
    "normal.float_Tensor": (lambda x: torch.normal(2.0, torch.full_like(x, 3.0)), 2.0, 3.0),
    "normal.Tensor_Tensor": (
        lambda x: torch.normal(torch.full_like(x, 2.0), torch.full_like(x, 3.0)),
        2.0,
        3.0,
    ),
    "multinomial": (
        lambda x: torch.multinomial(
            torch.tensor([1.0, 2.0, 1.0], device="flagos"), x.numel(), replacement=True
        ).float(),
        1.0,
        0.7071,
    ),
    "native_dropout": (
        lambda x: torch.ops.aten.native_dropout(torch.ones_like(x), 0.25, True)[0],
        1.0,
        0.5774,
    ),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_random_numbers(name: str, fallbacks: Fallbacks) -> None:
    """Mean and deviation within five standard errors; the same seed draws the same, and another one does not."""
    draw, mean, deviation = DISTRIBUTIONS[name]
    count = 20_000

    def numbers(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return draw(torch.empty(count, device="flagos")).cpu()

    x = numbers(1)
    assert fallbacks() == {}
    assert abs(x.mean().item() - mean) < 5 * deviation / count**0.5
    assert abs(x.std().item() / deviation - 1) < 0.1
    assert torch.equal(x, numbers(1))
    assert not torch.equal(x, numbers(2))
    torch.manual_seed(1)
    again = draw(torch.empty(count, device="flagos"))
    assert not torch.equal(draw(torch.empty(count, device="flagos")).cpu(), again.cpu())


def test_cauchys_numbers_have_their_quartiles() -> None:
    torch.manual_seed(0)
    x = torch.empty(20_000, device="flagos").cauchy_(1.0, 2.0).cpu()
    quartiles = x.quantile(torch.tensor([0.25, 0.5, 0.75]))
    torch.testing.assert_close(quartiles, torch.tensor([-1.0, 1.0, 3.0]), rtol=0, atol=0.15)


def test_exponential_numbers_are_never_0() -> None:
    """Programs divide by them. The simulated chip draws a uniform 0 from this seed, as every chip does now and then."""
    x = torch.empty(1 << 19, device="flagos")
    torch.manual_seed(7)
    if simulator.is_loaded():
        assert x.uniform_().min().item() == 0
    torch.manual_seed(7)
    assert x.exponential_().min().item() > 0 and x.isfinite().all()


def test_permutations(fallbacks: Fallbacks) -> None:
    x = torch.randperm(100, device="flagos")
    assert x.sort().values.cpu().tolist() == list(range(100))
    assert not torch.equal(x.cpu(), torch.arange(100))
    assert torch.empty(9, device="flagos").random_().ge(0).all()
    assert fallbacks() == {}


def test_learning_rates_in_tensors() -> None:
    for fused in (torch.optim.AdamW, torch.optim.Adam):
        here, there = (torch.nn.Parameter(drawn(4, 3).to(device)) for device in ("cpu", "flagos"))
        for parameter in (here, there):
            parameter.grad = parameter.detach().sin()
            fused([parameter], lr=torch.tensor(0.01), fused=True).step()
        torch.testing.assert_close(there.detach().cpu(), here.detach(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("kind", "how"),
    [
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"weight_decay": 0.1, "maximize": True}),
        (torch.optim.SGD, {"momentum": 0.9, "dampening": 0.2, "maximize": True}),
        (torch.optim.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
        (torch.optim.SGD, {"momentum": 0.9, "lr": torch.tensor(0.02)}),
        (torch.optim.Adam, {"weight_decay": 0.1, "maximize": True}),
    ],
)
def test_fused_optimizers(
    kind: type[torch.optim.Optimizer], how: dict[str, Any], fallbacks: Fallbacks
) -> None:
    """Four updates, of which a gradient scaler keeps one from being made."""
    results = []
    for device in ("cpu", "flagos"):
        weights = [nn.Parameter(drawn(*shape).to(device)) for shape in ((4, 3), (), (2, 0))]
        optimizer = kind(weights, **{"lr": 0.01, **how}, fused=True)
        scaler = torch.amp.GradScaler(device, init_scale=4.0)
        for step in range(4):
            scaler.scale(torch.zeros((), device=device))
            for weight in weights:
                weight.grad = 4 * (weight.detach() + step).sin()
            if step == 2 and kind is torch.optim.SGD:
                weights[0].grad[0] = torch.inf
            scaler.step(optimizer)
            scaler.update()
        results.append([weight.detach().cpu() for weight in weights])
        results[-1] += [
            value.cpu()
            for state in optimizer.state.values()
            for value in state.values()
            if isinstance(value, Tensor)
        ]
    assert fallbacks() == {}
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-6)


def test_orders_of_a_tensor_without_dimensions(fallbacks: Fallbacks) -> None:
    """CANN takes at least one."""
    x = torch.tensor(3.0, device="flagos")
    for values, places in (x.sort(), x.sort(stable=True), x.topk(1), x.max(0), x.kthvalue(1)):
        assert (values.item(), places.item(), values.shape, places.shape) == (3, 0, (), ())
    assert fallbacks() == {}


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 0), (2, 3, 4, 5)])
def test_shapes_that_all_take(shape: tuple[int, ...], fallbacks: Fallbacks) -> None:
    """Without dimensions, empty, of one element, of several; contiguous, transposed, repeated; with numbers."""
    x = drawn(*shape)
    views = [x, x.flip(0) if shape else x, x.expand((2, *shape))]
    views += [x.transpose(0, -1)] if len(shape) > 1 else []
    for view in views:
        here = (view * 2 + view).exp().clamp(max=50).add(view, alpha=0.5).where(view > 0, view)
        on = view.to("flagos") if view is not views[2] else x.to("flagos").expand((2, *shape))
        there = (on * 2 + on).exp().clamp(max=50).add(on, alpha=0.5).where(on > 0, on)
        torch.testing.assert_close(there.cpu(), here)
        torch.testing.assert_close(on.sum().cpu(), view.sum(), rtol=1e-4, atol=1e-5)
    assert fallbacks() == {}


def test_more_dimensions_than_cann_takes_fall_back(fallbacks: Fallbacks) -> None:
    x = drawn(*([1] * 8), 3)
    torch.testing.assert_close((x.to("flagos") + 1).cpu(), x + 1)
    assert fallbacks() == {"aten::add.Tensor": 1}
