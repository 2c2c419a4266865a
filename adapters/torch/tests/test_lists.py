"""Operators on lists: few tensors are told apart one by one, many by looking them up."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

FEW, MANY = 3, 200

CALLS = {
    "new tensors": lambda x: torch._foreach_add(x, 1.5),
    "a tensor given twice": lambda x: torch._foreach_add([*x, x[0]], [*x, x[1]]),
    "views of one storage": lambda x: torch._foreach_sub([t[1:] for t in x], [t[:-1] for t in x]),
    "scalars": torch._foreach_norm,
    "views returned": lambda x: torch.stack(x).unbind(),
}


def tensors(count: int, device: str) -> list[Tensor]:
    return [torch.arange(12.0, device=device).reshape(4, 3) + i for i in range(count)]


@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_lists_of_any_length_give_what_the_native_device_gives(call, count, native):
    expected, found = call(tensors(count, native)), call(tensors(count, "flagos"))
    assert len(found) == len(expected)
    for theirs, ours in zip(expected, found, strict=True):
        assert ours.device.type == "flagos"
        assert torch.equal(ours.cpu(), theirs.cpu())


@pytest.mark.parametrize("count", [FEW, MANY])
def test_new_tensors_have_memory_of_their_own(count):
    given = tensors(count, "flagos")
    found = torch._foreach_add(given, 0)
    assert len({t.data_ptr() for t in (*given, *found)}) == 2 * count
    found[0].add_(1)
    assert torch.equal(given[0].cpu(), tensors(1, "cpu")[0])


@pytest.mark.parametrize("count", [FEW, MANY])
def test_views_returned_share_their_storage(count):
    whole = torch.zeros(count, 3, device="flagos")
    rows = whole.unbind()
    rows[-1].add_(1)
    assert whole.sum().item() == 3
    assert rows[0].untyped_storage().data_ptr() == rows[-1].untyped_storage().data_ptr()


@pytest.mark.parametrize("count", [FEW, MANY])
def test_written_lists_are_written_in_place_and_counted(count, native):
    expected, found = tensors(count, native), tensors(count, "flagos")
    addresses = [t.data_ptr() for t in found]
    for given in (expected, found):
        torch._foreach_mul_(given, given)
        torch._foreach_copy_([t[0] for t in given], [t[1] for t in given])
    assert [t.data_ptr() for t in found] == addresses
    assert [t._version for t in found] == [t._version for t in expected]
    for theirs, ours in zip(expected, found, strict=True):
        assert torch.equal(ours.cpu(), theirs.cpu())


WITH: dict[str, Callable[[list[Tensor]], tuple[Any, ...]]] = {
    "nothing": lambda x: (),
    "a scalar": lambda x: (1.5,),
    "scalars": lambda x: ([1.5 + i for i in range(len(x))],),
    "a tensor": lambda x: (torch.tensor(1.5, device=x[0].device),),
    "a tensor of the CPU": lambda x: (torch.tensor(1.5),),
    "a list": lambda x: ([t + 1 for t in x],),
    "itself": lambda x: (x,),
    "a list and a scalar": lambda x: ([t + 1 for t in x], 0.5),
    "lists and a scalar": lambda x: ([t + 1 for t in x], [t + 2 for t in x], 0.5),
    "lists and scalars": lambda x: ([t + 1 for t in x], [t + 2 for t in x], [0.5] * len(x)),
}
ARITHMETIC = ("a scalar", "scalars", "a list", "itself")
OPERATORS = {
    "add": (*ARITHMETIC, "a tensor"),
    "sub": ARITHMETIC,
    "mul": (*ARITHMETIC, "a tensor", "a tensor of the CPU"),
    "div": ARITHMETIC,
    "maximum": ("a list",),
    "lerp": ("a list and a scalar",),
    "addcmul": ("lists and a scalar", "lists and scalars"),
    "addcdiv": ("lists and a scalar", "lists and scalars"),
    **dict.fromkeys(("sqrt", "neg", "abs", "sign", "reciprocal", "zero"), ("nothing",)),
}


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize(
    ("name", "arguments"), [(name, kind) for name, kinds in OPERATORS.items() for kind in kinds]
)
def test_what_optimizers_call_is_as_on_the_native_device(name, arguments, count, native):
    def on(device: str) -> tuple[list[int], list[Tensor]]:
        x = tensors(count, device)
        new = getattr(torch, f"_foreach_{name}")(x, *WITH[arguments](x)) if name != "zero" else []
        unwritten = [t._version for t in (*x, *new)]
        getattr(torch, f"_foreach_{name}_")(x, *WITH[arguments](x))
        assert {t.device.type for t in (*x, *new)} == {device}
        return [*unwritten, *(t._version for t in x)], [t.cpu() for t in (*new, *x)]

    (versions, values), (_, expected) = on("flagos"), on(native)
    # Those of the CPU: CUDA's kernels for the lists of `lerp_` and `zero_` forget to raise them.
    expected_versions, _ = on("cpu")
    assert versions == expected_versions and max(versions) == 1
    for ours, theirs in zip(values, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=0, equal_nan=True)


@pytest.mark.host
def test_what_a_refused_list_has_written_is_counted():
    def on(device: str) -> tuple[list[int], list[list[float]]]:
        x = [torch.ones(3, device=device) for _ in range(3)]
        with pytest.raises(RuntimeError, match="must match the size"):
            torch._foreach_add_(x, [torch.ones(n, device=device) for n in (3, 4, 3)])
        return [t._version for t in x], [t.tolist() for t in x]

    (versions, values), (_, expected) = on("flagos"), on("cpu")
    assert values == expected == [[2.0] * 3, [1.0] * 3, [1.0] * 3]
    assert versions[0] == 1


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_fused_step_counts_the_writes_to_every_list(count, native):
    """CUDA's kernels count the writes to a list's tensors themselves."""

    def of(device: str) -> tuple[list[int], list[Tensor]]:
        lists = [
            [torch.full((4,), float(i + j), device=device) for i in range(count)] for j in range(4)
        ]
        steps = [torch.ones((), device=device) for _ in range(count)]
        torch._foreach_add_(steps, 1)
        torch._foreach_mul_(lists[1], lists[0])
        torch._fused_adamw_(
            *lists,
            [],
            steps,
            lr=0.1,
            beta1=0.9,
            beta2=0.99,
            weight_decay=0.1,
            eps=1e-8,
            amsgrad=False,
            maximize=False,
        )
        norms = torch._foreach_norm(lists[0])
        written = [*steps, *(t for some in lists for t in some)]
        return [t._version for t in written], [t.cpu() for t in (*written, *norms)]

    (versions, values), (found, ours) = of(native), of("flagos")
    assert max(versions) > 0
    assert found == versions
    assert all(map(torch.equal, ours, values))


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize(
    ("step", "lists", "options"),
    [
        (torch._fused_adam_, 4, {"beta1": 0.9, "beta2": 0.99, "eps": 1e-8, "amsgrad": False}),
        (
            torch._fused_sgd_,
            3,
            {"momentum": 0.9, "dampening": 0.0, "nesterov": False, "is_first_step": False},
        ),
    ],
    ids=["adam", "sgd"],
)
@pytest.mark.parametrize("overflows", [False, True])
def test_fused_steps_of_scaled_gradients(step, lists, options, overflows, count, native):
    def of(device: str) -> tuple[list[int], list[Tensor]]:
        written = [
            [torch.full((4,), 1.0 + i + j, device=device) for i in range(count)]
            for j in range(lists)
        ]
        steps = [torch.ones((), device=device) for _ in range(count)]
        more = ([], steps) if lists == 4 else ()
        scale, found = torch.full((), 4.0, device=device), torch.full((), 0.0, device=device)
        if overflows:
            found += 1
        step(
            *(written + list(more)),
            lr=0.1,
            weight_decay=0.1,
            maximize=False,
            grad_scale=scale,
            found_inf=found,
            **options,
        )
        every = [t for some in written for t in some]
        return [t._version for t in every], [t.cpu() for t in every]

    (versions, values), (found, ours) = of(native), of("flagos")
    assert found == versions
    assert all(map(torch.equal, ours, values))


@pytest.mark.needs("native_numbers")
@pytest.mark.parametrize("count", [FEW, MANY])
@pytest.mark.parametrize("gradient", [6.0, float("inf"), float("nan")])
def test_gradients_are_unscaled_as_on_the_native_device(gradient, count, native):
    def of(device: str) -> tuple[list[int], list[Tensor]]:
        grads = [torch.full((3,), 2.0 + i, device=device) for i in range(count)]
        grads[-1][1] = gradient
        found, scale = torch.zeros(1, device=device), torch.full((1,), 4.0, device=device)
        growth = torch.zeros(1, dtype=torch.int32, device=device)
        before = [t._version for t in (*grads, found, scale, growth)]
        torch._amp_foreach_non_finite_check_and_unscale_(grads, found, scale.reciprocal())
        torch._amp_update_scale_(scale, growth, found, 2.0, 0.5, 1)
        after = [t._version for t in (*grads, found, scale, growth)]
        raised = [b - a for a, b in zip(before, after, strict=True)]
        return raised, [t.cpu() for t in (*grads, found, scale, growth)]

    (versions, values), (found, ours) = of(native), of("flagos")
    assert found == versions
    for got, expected in zip(ours, values, strict=True):
        torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


def test_norms_of_a_list_have_memory_of_their_own():
    norms = torch._foreach_norm([torch.full((4,), float(i), device="flagos") for i in range(3)])
    norms[1].fill_(-1)
    assert [t.item() for t in norms] == [0.0, -1.0, 4.0]


def test_a_written_list_is_noticed_by_autograd(native):
    for device in (native, "flagos"):
        x = torch.ones(3, device=device, requires_grad=True)
        y = [x * 2 for _ in range(20)]
        loss = sum((t * t).sum() for t in y)
        torch._foreach_add_([t.detach() for t in y], 1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_more_tensors_than_a_thread_keeps_aliases_of():
    given = list(torch.zeros(9000, 2, device="flagos").unbind())
    torch._foreach_add_(given, 1)
    again = torch._foreach_add(given, 1)
    assert torch.stack(given).sum().item() == 18000 and torch.stack(again).sum().item() == 36000


@pytest.mark.parametrize("count", [FEW, MANY])
def test_a_list_that_is_refused_leaves_nothing_behind(count):
    given = tensors(count, "flagos")
    with pytest.raises(RuntimeError, match="size"):
        torch._foreach_add_(given, [torch.zeros(5, device="flagos") for _ in given])
    used = torch.flagos.memory_allocated()
    del given
    assert torch.flagos.memory_allocated() < used
    found = torch._foreach_add(tensors(count, "flagos"), 1)
    assert all(
        map(torch.equal, (t.cpu() for t in found), torch._foreach_add(tensors(count, "cpu"), 1))
    )


def test_lists_in_several_threads():
    def work(seed: int) -> list[Tensor]:
        given = [t + seed for t in tensors(MANY, "flagos")]
        for _ in range(20):
            torch._foreach_mul_(given, 0.5)
            torch._foreach_add_(given, [t + 1 for t in given])
        return [t.cpu() for t in given]

    expected = [work(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        for theirs, ours in zip(expected, pool.map(work, range(4)), strict=True):
            assert all(map(torch.equal, ours, theirs))


@pytest.mark.parametrize("rows", [3, 40])
def test_views_of_one_storage_are_counted_each(rows, native):
    versions = []
    for device in (native, "flagos"):
        whole, pair = (torch.zeros(rows, 2, device=device) for _ in range(2))
        torch._foreach_add_(whole.unbind(), 1)
        torch._foreach_add_([pair, pair[:1], pair], 1)
        versions.append((whole._version, pair._version))
    assert versions[0] == versions[1]
    assert native != "cpu" or versions[0] == (rows, 3)


@pytest.mark.parametrize("source", ["cpu", "flagos"])
@pytest.mark.parametrize("target", ["cpu", "flagos"])
def test_a_copy_between_devices_is_noticed_by_autograd(source, target):
    x = torch.ones(3, device=target, requires_grad=True)
    y = x * 2
    loss = (y * y).sum()
    torch._foreach_copy_([y.detach()], [torch.ones(3, device=source)])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.fixture
def writing(native):
    """A library with operators that write to a tensor, and to each tensor of a list."""
    # A library that is only dropped leaves names in torch.ops, at which torch.export stumbles later.
    with torch.library._scoped_library("test_lists", "DEF") as library:
        library.define("inc(Tensor(a!) x) -> ()")
        library.define("incs(Tensor(a!)[] x) -> ()")

        def increment(x: Tensor) -> None:
            x.add_(1)

        def increment_each(x: list[Tensor]) -> None:
            for each in x:
                each.add_(1)

        library.impl("inc", increment, native.upper())
        library.impl("incs", increment_each, native.upper())
        yield torch.ops.test_lists


def test_operators_of_others_that_write_are_noticed_by_autograd(native, writing):
    @torch.library.custom_op("test_lists_custom::counted", mutates_args={"x"})
    def counted(x: Tensor) -> None:
        x.add_(1)

    for call in (writing.inc, lambda x: writing.incs([x]), counted):
        versions = []
        for device in (native, "flagos"):
            x = torch.ones(1, device=device, requires_grad=True)
            y = x * 2
            loss = (y * y).sum()
            call(y.detach())
            versions.append(y._version)
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                loss.backward()
        # A custom_op counts twice in torch 2.14, on every device.
        assert versions[0] == versions[1] >= 1


@pytest.mark.parametrize("kind", ["fused", "foreach"])
def test_an_optimizer_of_many_parameters_steps_as_on_the_native_device(kind, native):
    def steps(device: str) -> list[Tensor]:
        parameters = [torch.nn.Parameter(t) for t in tensors(MANY, device)]
        optimizer = torch.optim.AdamW(parameters, lr=0.01, **{kind: True})
        for _ in range(3):
            for i, parameter in enumerate(parameters):
                parameter.grad = parameter.detach() * 0.1 + i
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        return [parameter.detach().cpu() for parameter in parameters]

    assert all(map(torch.equal, steps("flagos"), steps(native)))


@pytest.mark.host
def test_weights_are_averaged_by_lists_as_on_accelerators(native):
    """torch averages in a loop, by another formula, only on the CPU (docs/architecture.md)."""
    swa = torch.optim.swa_utils

    def averaged(device):
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 4).to(device)
        average = swa.AveragedModel(model, multi_avg_fn=swa.get_swa_multi_avg_fn())
        if device == "flagos":
            average = swa.AveragedModel(model)
        for step in range(4):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.mul_(1 + 0.1 * step)
            average.update_parameters(model)
        return [parameter.cpu() for parameter in average.module.parameters()]

    for there, here in zip(averaged("flagos"), averaged(native), strict=True):
        assert torch.equal(there, here)


@pytest.mark.host  # lists of torch's CUDA kernels do not ask for the mode
def test_a_list_of_inference_tensors_is_written_in_inference_mode_only():
    with torch.inference_mode():
        a = torch.ones(3, device="flagos")
        torch._foreach_add_([a], 1.0)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside"):
        torch._foreach_add_([a], 1.0)
    assert a.tolist() == [2.0] * 3


# Where tensors of a list are on several devices, each result is where its own tensors are, as on torch's devices.
MIXED = {
    "typed": (lambda x: torch._foreach_add(x, 1.0), lambda x: torch._foreach_add_(x, 1.0)),
    "with another list": (lambda x: torch._foreach_mul(x, x), lambda x: torch._foreach_mul_(x, x)),
    "boxed": (torch._foreach_exp, torch._foreach_exp_),
    "norm": (torch._foreach_norm, None),
}


@pytest.mark.parametrize("other", [torch.tensor(2.0), torch.ones(3)], ids=["scalar", "vector"])
@pytest.mark.parametrize("first", [True, False], ids=["last", "first"])
@pytest.mark.parametrize("name", MIXED)
def test_lists_of_several_devices(name, first, other):
    def on(device):
        mixed = [torch.full((2,), 3.0, device=device), other.clone()]
        return mixed if first else mixed[::-1]

    out_of_place, in_place = MIXED[name]
    expected = out_of_place(on("cpu"))
    x = on("flagos")
    devices = [tensor.device for tensor in x]
    for ours, theirs, device in zip(out_of_place(x), expected, devices, strict=True):
        assert ours.device == device
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=0)
    if in_place is not None:
        expected = on("cpu")
        in_place(expected)
        in_place(x)
        assert [tensor.device for tensor in x] == devices
        assert [tensor._version for tensor in x] == [tensor._version for tensor in expected]
        for ours, theirs in zip(x, expected, strict=True):
            torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-6, atol=0)


def test_writes_of_several_threads_to_views_of_one_tensor_are_all_counted():
    threads, calls = 4, 300
    base = torch.zeros(threads, 100, device="flagos")

    def write(row: int) -> None:
        view = base[row]
        for _ in range(calls):
            torch._foreach_add_([view], 1.0)  # typed
            torch._foreach_trunc_([view])  # boxed

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(write, range(threads)))
    assert base._version == 2 * threads * calls
    assert base.eq(calls).all()
