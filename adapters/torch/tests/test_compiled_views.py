"""The views around a compiled graph: the graph itself is a function here, so that every vendor runs them."""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from torch_fl.cuda.compiled_graph import OverCuda

pytestmark = pytest.mark.needs("aliases")


def graph(
    function: Callable[[list[torch.Tensor]], list[torch.Tensor]], *, static: set[int], count: int
) -> Any:
    """`function` as a compiled graph of `count` arguments on flagos, whose first result is on flagos."""
    return OverCuda(function, list(range(count)), static, [0])  # type: ignore[arg-type]


def weights(count: int = 3) -> list[nn.Parameter]:
    return [nn.Parameter(torch.full((4, 4), float(i), device="flagos")) for i in range(count)]


def total(arguments: list[torch.Tensor]) -> list[torch.Tensor]:
    assert all(one.device.type != "flagos" for one in arguments)
    result = sum(one.sum() for one in arguments)
    arguments.clear()
    return [result]


def called(over: Any, *arguments: torch.Tensor) -> Any:
    with torch.no_grad():
        return over(list(arguments))[0]


def test_views_are_kept_and_follow_their_tensors():
    seen: list[set[int]] = []

    def noted(arguments):
        seen.append({id(one) for one in arguments[:3]})
        return total(arguments)

    over, given = graph(noted, static={0, 1, 2}, count=4), weights()
    x = torch.ones(2, device="flagos")
    assert called(over, *given, x).item() == 16 * 3 + 2
    with torch.no_grad():
        given[0].add_(1)
    assert called(over, *given, x).item() == 16 * 4 + 2
    given[1].data = torch.full((4, 4), 10.0, device="flagos")
    assert called(over, *given, x).item() == 16 * 13 + 2
    with torch.no_grad():
        given[2].set_(torch.full((2, 3), 5.0, device="flagos"))
    assert called(over, *given, x).item() == 16 * 11 + 6 * 5 + 2
    assert seen[0] == seen[1] == seen[2] == seen[3]
    other = weights()
    assert called(over, *other, x).item() == 16 * 3 + 2
    assert called(over, *given, x).item() == 16 * 11 + 6 * 5 + 2


def test_no_memory_is_held_between_calls():
    over, given = graph(total, static={0, 1, 2}, count=3), weights()
    called(over, *given)
    before = torch.flagos.memory_allocated()
    for one in given:
        one.data = torch.empty(0, device="flagos")
    after = torch.flagos.memory_allocated()
    assert before - after >= 3 * 64
    assert called(over, *given).item() == 0
    del given, one
    assert torch.flagos.memory_allocated() <= after


def test_arguments_that_pass_are_freed_while_the_graph_runs():
    freed: list[int] = []

    def freeing(arguments):
        before = torch.flagos.memory_allocated()
        arguments.clear()
        freed.append(before - torch.flagos.memory_allocated())
        return [torch.zeros(())]

    over, given = graph(freeing, static={0, 1}, count=3), weights(2)
    for _ in range(2):
        with torch.no_grad():
            over([*given, torch.ones(1 << 20, device="flagos")])
    assert all(one >= 4 << 20 for one in freed), freed


@pytest.mark.parametrize("keep", ["the tensor", "a view of it", "its detached twin"])
def test_a_view_that_somebody_keeps_stays_as_it_was(keep):
    kept: list[torch.Tensor] = []

    def keeping(arguments):
        if not kept:
            first = arguments[0]
            kept.append(
                {
                    "the tensor": first,
                    "a view of it": first[0],
                    "its detached twin": first.detach(),
                }[keep]
            )
        return total(arguments)

    over, given = graph(keeping, static={0, 1, 2}, count=3), weights()
    assert called(over, *given).item() == 16 * 3
    given[0].data = torch.full((4, 4), 7.0, device="flagos")
    assert called(over, *given).item() == 16 * 10
    assert called(over, *given).item() == 16 * 10
    assert kept[0].unique().tolist() == [0.0]


def test_a_result_may_be_an_argument():
    over, given = graph(lambda arguments: [arguments[0]], static={0, 1}, count=2), weights(2)
    first = called(over, *given)
    assert first.device.type == "flagos" and first.data_ptr() == given[0].data_ptr()
    given[0].data = torch.full((4, 4), 7.0, device="flagos")
    second = called(over, *given)
    assert first.unique().tolist() == [0.0] and second.unique().tolist() == [7.0]


def test_a_write_of_the_graph_counts_as_one():
    def writing(arguments):
        arguments[0].add_(1)
        return total(arguments)

    over, given = graph(writing, static={0, 1}, count=2), weights(2)
    for count in range(1, 4):
        before = given[0]._version
        assert called(over, *given).item() == 16 * (1 + count)
        assert given[0]._version == before + 1
    loss = (given[1] * given[1]).sum()
    called(over, given[1], given[0])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_an_error_of_the_graph_ends_that_call_alone():
    wrong = [False]

    def failing(arguments):
        if wrong[0]:
            raise ValueError("wrong")
        return total(arguments)

    over, given = graph(failing, static={0, 1, 2}, count=3), weights()
    for fails in (False, True, False, True, False):
        wrong[0] = fails
        if fails:
            with pytest.raises(ValueError, match="wrong"):
                called(over, *given)
        else:
            assert called(over, *given).item() == 16 * 3


def test_a_call_inside_a_call_has_views_of_its_own():
    depth = [0]

    def nested(arguments):
        depth[0] += 1
        if depth[0] == 1:
            inside = called(over, *other).item()
            assert inside == 16 * 6
        depth[0] -= 1
        return total(arguments)

    over, given, other = graph(nested, static={0, 1, 2}, count=3), weights(), weights(4)[1:]
    for _ in range(3):
        assert called(over, *given).item() == 16 * 3


def test_threads_have_views_of_their_own():
    over, failures = graph(total, static={0, 1, 2}, count=3), []

    def work(value: float) -> None:
        given = weights()
        for step in range(200):
            given[0].data = torch.full((4, 4), value + step, device="flagos")
            if (found := called(over, *given).item()) != 16 * (value + step + 3):
                failures.append((value, step, found))

    threads = [threading.Thread(target=work, args=(float(1000 * i),)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_inference_mode_and_back():
    over, given = graph(total, static={0, 1, 2}, count=3), weights()
    for mode in (False, True, True, False, False):
        with torch.inference_mode(mode):
            assert called(over, *given).item() == 16 * 3
    with torch.inference_mode():
        made = [torch.ones(2, device="flagos") for _ in range(3)]
        assert called(over, *made).item() == 6
        assert called(over, *made).item() == 6
    assert called(over, *made).item() == 6


def first_sum(arguments):
    return [arguments[0].real.sum()]


def test_lazy_and_strange_tensors_are_viewed_as_they_are():
    over = graph(first_sum, static={0}, count=1)
    x = torch.full((2,), 1 + 2j, device="flagos")
    for one in (x, x.conj(), x, x.conj()):
        for _ in range(2):
            assert called(over, one).item() == 2
    assert called(over, torch.ones(2)).item() == 2  # a CPU tensor stays one


def test_a_tensor_of_another_device_stays_as_it_is(native):
    over = graph(first_sum, static={0}, count=1)
    for x in (torch.ones(2), torch.ones(2, device=native)):
        for _ in range(2):
            assert called(over, x).item() == 2
        assert x.tolist() == [1, 1]
    assert called(over, torch.ones(3, device="flagos")).item() == 3


def test_weights_may_be_swapped_between_calls():
    over, given, other = graph(total, static={0, 1, 2}, count=3), weights(), weights(4)[1:]
    assert called(over, *given).item() == 16 * 3
    for a, b in zip(given, other, strict=True):
        torch.utils.swap_tensors(a, b)
    assert called(over, *given).item() == 16 * 6
    assert called(over, *other).item() == 16 * 3


def test_the_weights_of_another_layer_are_taken_too():
    seen: list[set[int]] = []

    def noted(arguments):
        seen.append({id(one) for one in arguments})
        return total(arguments)

    over, layers = graph(noted, static={0, 1, 2}, count=3), [weights(), weights(4)[1:]]
    assert [called(over, *layer).item() for layer in layers * 2] == [16 * 3, 16 * 6] * 2
    assert all(one == seen[0] for one in seen)


def test_resting_views_are_empty_tensors():
    kept = []

    def noted(arguments):
        kept.extend(map(weakref.ref, arguments))
        return total(arguments)

    over, given = graph(noted, static={0, 1, 2}, count=3), weights()
    called(over, *given)
    resting = [one() for one in kept if one() is not None]
    for view in resting:
        assert view.numel() == 0 and "[]" in repr(view) and view.untyped_storage().nbytes() == 0
    assert len(resting) == 3
    del resting, view
    assert called(over, *given).item() == 16 * 3


def test_a_mode_that_keeps_results_keeps_them_right():
    class Keeping(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            result = function(*args, **(kwargs or {}))
            results.append(result)
            return result

    results: list[Any] = []
    kept: list[torch.Tensor] = []

    def keeping(arguments):
        kept.append(arguments[0])
        return total(arguments)

    over, given = graph(keeping, static={0, 1, 2}, count=3), weights(4)[1:]
    with Keeping():
        called(over, *given)
    results.clear()
    kept.clear()
    called(over, *given)
    called(over, *given)
    assert [one.unique().tolist() for one in kept] == [[1.0], [1.0]]


def test_a_copy_has_views_of_its_own():
    over, given = graph(total, static={0, 1, 2}, count=3), weights()
    called(over, *given)
    for copied in (copy.copy(over), copy.deepcopy(over)):
        assert copied._resting == []
        assert called(copied, *given).item() == 16 * 3


def test_there_is_a_view_for_each_index():
    from torch_fl._C import Views

    def made(arguments, indices):
        address = torch.ops.flagos.views_create(given)
        views = torch.ops.flagos.views_tensors(address)
        return Views(address, arguments, indices, views, torch._C.TensorBase)

    given = weights(2)
    with pytest.raises(ValueError, match="2 views for 1 arguments"):
        made(list(given), [0])
    with pytest.raises(ValueError, match="no tensor"):
        made([given[0], 1], [0, 1])
    with pytest.raises(RuntimeError, match="does not keep a tensor in its Python object"):
        made(list(reversed(given)), [0, 1])  # others than those of the views
    views = made(list(given), [0, 1])
    assert not views.enter([given[0], "no tensor"])
    with pytest.raises(IndexError):
        views.enter(given[:1])


def test_a_graph_may_resize_the_storage_of_an_argument():
    """As traced FSDP2 does with a parameter."""
    import torch._inductor.inductor_prims

    class Resizing:
        source_code = "torch.ops.inductor.resize_storage_bytes_.default(arg0, 8192)"

        def __call__(self, arguments: list[torch.Tensor]) -> list[torch.Tensor]:
            for size in (0, 8192):
                torch.ops.inductor.resize_storage_bytes_(arguments[0], size)
            arguments[0].fill_(7.0)
            arguments.clear()
            return [torch.zeros(())]

    given = torch.full((1024,), 2.0, device="flagos")
    over = OverCuda(Resizing(), [0], {0}, [])  # type: ignore[arg-type]
    for _ in range(2):
        called(over, given)
        others = [torch.full((1024,), -5.0, device="flagos") for _ in range(20)]
        assert given.untyped_storage().nbytes() == 8192
        assert given.untyped_storage().data_ptr() not in {one.data_ptr() for one in others}
        assert given.tolist() == [7.0] * 1024
        assert given.as_strided((2048,), (1,))[:1024].tolist() == [7.0] * 1024
