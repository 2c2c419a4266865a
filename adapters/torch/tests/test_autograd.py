"""Checkpointing, transforms and custom functions."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


@pytest.mark.parametrize("use_reentrant", [True, False])
@pytest.mark.parametrize("preserve", [True, False])
def test_checkpointing_gives_the_same_gradients(use_reentrant, preserve):
    layer = torch.nn.Linear(4, 4).to("flagos")
    x = torch.randn(3, 4, device="flagos", requires_grad=True)
    gradients = []
    for run in (
        layer,
        lambda x: checkpoint(layer, x, use_reentrant=use_reentrant, preserve_rng_state=preserve),
    ):
        x.grad = None
        run(x).tanh().sum().backward()
        gradients.append(x.grad.clone())
    assert torch.equal(*gradients)


@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpointing_draws_the_same_random_numbers_again(use_reentrant):
    x = torch.ones(1000, device="flagos", requires_grad=True)
    y = checkpoint(torch.nn.functional.dropout, x, use_reentrant=use_reentrant)
    y.sum().backward()
    assert torch.equal(x.grad, y.detach())


def test_checkpoint_sequential():
    layers = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(4))).to("flagos")
    x = torch.randn(2, 4, device="flagos", requires_grad=True)
    assert torch.equal(checkpoint_sequential(layers, 2, x, use_reentrant=False), layers(x))


TRANSFORMS = [
    pytest.param(lambda f, x: torch.func.grad(lambda a: f(a).sum())(x), id="grad"),
    pytest.param(lambda f, x: torch.func.vmap(f)(x), id="vmap"),
    pytest.param(lambda f, x: torch.func.vmap(f, in_dims=1, out_dims=1)(x), id="vmap in_dims"),
    pytest.param(lambda f, x: torch.func.jacrev(f)(x), id="jacrev"),
    pytest.param(lambda f, x: torch.func.jacfwd(f)(x), id="jacfwd"),
    pytest.param(lambda f, x: torch.func.hessian(lambda a: f(a).sum())(x), id="hessian"),
    pytest.param(lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),))[1], id="jvp"),
    pytest.param(lambda f, x: torch.func.functionalize(f)(x), id="functionalize"),
    pytest.param(
        lambda f, x: torch.func.vmap(torch.func.grad(lambda a: f(a).sum()))(x), id="per sample"
    ),
]


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_transforms(transform):
    def f(a):
        return (a.sin() * a).cumsum(-1)

    x = torch.randn(3, 4, dtype=torch.float64)
    there = transform(f, x.to("flagos"))
    assert there.device.type == "flagos"
    torch.testing.assert_close(there.cpu(), transform(f, x))


def test_vmap_with_randomness():
    x = torch.zeros(4, 3, device="flagos")
    noise = torch.func.vmap(lambda a: a + torch.randn_like(a), randomness="different")(x)
    assert noise.unique().numel() == 12


def test_functional_call():
    module = torch.nn.Linear(3, 2).to("flagos")
    zeros = {k: torch.zeros_like(v) for k, v in module.named_parameters()}
    x = torch.ones(1, 3, device="flagos")
    assert torch.func.functional_call(module, zeros, x).tolist() == [[0, 0]]


def test_custom_functions():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            assert ctx.saved_tensors[0].device.type == "flagos"
            return grad * 2

    x = torch.ones(3, device="flagos", requires_grad=True)
    Double.apply(x).sum().backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_gradcheck():
    x = torch.randn(3, 3, dtype=torch.float64, device="flagos", requires_grad=True)
    assert torch.autograd.gradcheck(lambda a: (a @ a).tanh(), (x,))


def test_anomaly_mode_finds_the_operator():
    x = torch.zeros(2, device="flagos", requires_grad=True)
    with torch.autograd.detect_anomaly(check_nan=True), pytest.raises(RuntimeError, match="nan"):
        (x.sqrt() * 0).sum().backward()


def test_saved_tensors_can_be_kept_on_the_cpu():
    x = torch.randn(4, device="flagos", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = x * x
    y.sum().backward()
    assert torch.equal(x.grad, 2 * x.detach())


@pytest.mark.host
@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize("dims", [2, 3])
def test_group_norm_over_channels_last_has_the_cpus_gradients(dims, checkpointed):
    memory_format = torch.channels_last if dims == 2 else torch.channels_last_3d
    conv = (nn.Conv2d, nn.Conv3d)[dims - 2]
    torch.manual_seed(0)
    there = nn.Sequential(conv(3, 16, 3), nn.GroupNorm(4, 16), nn.SiLU(), conv(16, 2, 3))
    there.to(memory_format=memory_format)
    here = copy.deepcopy(there).to("flagos")
    x = torch.randn(2, 3, *[11] * dims).to(memory_format=memory_format)
    found = []
    for model, device in ((there, "cpu"), (here, "flagos")):
        own = x.detach().to(device).requires_grad_()
        y = checkpoint(model, own, use_reentrant=False) if checkpointed else model(own)
        y.pow(2).sum().backward()
        gradients = [own.grad, *(parameter.grad for parameter in model.parameters())]
        found.append([tensor.detach().cpu() for tensor in (y, *gradients)])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.host
def test_group_norm_over_channels_last_has_gradients_of_gradients_and_transforms():
    norm = nn.GroupNorm(2, 4).double().to("flagos")
    x = torch.randn(2, 4, 3, 3, dtype=torch.float64).to(memory_format=torch.channels_last)
    x = x.to("flagos").requires_grad_()
    assert torch.autograd.gradcheck(norm, x) and torch.autograd.gradgradcheck(norm, x)
    parameters = dict(norm.named_parameters())
    loss = lambda p: torch.func.functional_call(norm, p, (x.detach(),)).pow(2).sum()  # noqa: E731
    by_transform = torch.func.grad(loss)(parameters)
    loss(parameters).backward()
    for name, parameter in norm.named_parameters():
        torch.testing.assert_close(by_transform[name], parameter.grad)


@pytest.mark.host
def test_a_librarys_kernel_for_the_cpu_goes_before_its_composite(run_python):
    """As torch chooses for the CPU's own tensors."""
    program = """
    import torch
    library = torch.library.Library("flagos_tests_both", "DEF")
    library.define("which(Tensor x) -> Tensor")
    library.impl("which", lambda x: x * 2, "CompositeExplicitAutograd")
    library.impl("which", lambda x: x * 3, "CPU")
    x = torch.ones(2, device="flagos")
    print(torch.ops.flagos_tests_both.which(x).tolist())
    """
    assert run_python(program).stdout.strip() == "[3.0, 3.0]"


def test_custom_operators_run():
    @torch.library.custom_op("flagos_tests::triple", mutates_args=())
    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert triple(torch.ones(2, device="flagos")).tolist() == [3, 3]


@pytest.mark.parametrize(
    "write",
    [
        lambda out: torch.ops.aten.avg_pool1d.out(torch.zeros_like(out), [1], out=out),
        lambda out: torch.ops.aten.adaptive_avg_pool1d.out(torch.zeros_like(out), [8], out=out),
    ],
)
def test_what_a_composite_copies_into_out_counts_as_written(write):
    w = torch.ones(1, 2, 8, device="flagos", requires_grad=True) * 1
    y = w * w
    write(w.detach())
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.needs("aliases")
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32], ids=["a view", "other elements"])
def test_the_view_that_a_custom_operator_makes_is_a_view(native, dtype):
    with torch.library._scoped_library("flagos_views", "DEF") as library:
        library.define("tail(Tensor(a) x) -> Tensor(a)")
        library.impl("tail", lambda x: x[1:].view(dtype), native.upper())
        found = []
        for device in (native, "flagos"):
            w, x = torch.ones(3, device=device, requires_grad=True), torch.ones(3, device=device)
            y = (w * x).sum()
            tail = torch.ops.flagos_views.tail(x)
            tail.mul_(10)
            assert tail.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.backward()
            found.append((tail.tolist(), x.tolist(), x._version, tail.storage_offset()))
        assert found[0] == found[1], found
