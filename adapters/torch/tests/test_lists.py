"""Operators on lists: few tensors are told apart one by one, many by looking them up."""

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
