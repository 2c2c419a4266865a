"""Operators on lists: few tensors are told apart one by one, many by looking them up."""

from concurrent.futures import ThreadPoolExecutor

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
def test_lists_of_any_length_give_what_the_cpu_gives(call, count):
    expected, found = call(tensors(count, "cpu")), call(tensors(count, "flagos"))
    assert len(found) == len(expected)
    for theirs, ours in zip(expected, found, strict=True):
        assert ours.device.type == "flagos"
        assert torch.equal(ours.cpu(), theirs)


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
def test_written_lists_are_written_in_place_and_counted(count):
    expected, found = tensors(count, "cpu"), tensors(count, "flagos")
    addresses = [t.data_ptr() for t in found]
    for given in (expected, found):
        torch._foreach_mul_(given, given)
        torch._foreach_copy_([t[0] for t in given], [t[1] for t in given])
    assert [t.data_ptr() for t in found] == addresses
    assert [t._version for t in found] == [t._version for t in expected]
    for theirs, ours in zip(expected, found, strict=True):
        assert torch.equal(ours.cpu(), theirs)


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


@pytest.mark.parametrize("kind", ["fused", "foreach"])
def test_an_optimizer_of_many_parameters_steps_as_on_the_cpu(kind):
    def steps(device: str) -> list[Tensor]:
        parameters = [torch.nn.Parameter(t) for t in tensors(MANY, device)]
        optimizer = torch.optim.AdamW(parameters, lr=0.01, **{kind: True})
        for _ in range(3):
            for i, parameter in enumerate(parameters):
                parameter.grad = parameter.detach() * 0.1 + i
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
        return [parameter.detach().cpu() for parameter in parameters]

    assert all(map(torch.equal, steps("flagos"), steps("cpu")))
