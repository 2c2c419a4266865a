"""Tensors of the device in several processes: torch.multiprocessing and `share_memory_()`."""

from __future__ import annotations

import copy
from multiprocessing.reduction import ForkingPickler
from pickle import loads

import pytest
import torch
import torch.multiprocessing as mp
from torch import nn

TIMEOUT = 120


@pytest.fixture(params=["file_descriptor", "file_system"])
def strategy(request):
    before = mp.get_sharing_strategy()
    mp.set_sharing_strategy(request.param)
    yield request.param
    mp.set_sharing_strategy(before)


def _in_child(work, *arguments):
    """Runs `work(queue, *arguments)` in a spawned process; returns what it put, while it lives."""
    context = mp.get_context("spawn")
    answers, done = context.Queue(), context.Event()
    child = context.Process(
        target=_run, args=(mp.get_sharing_strategy(), work, answers, done, arguments)
    )
    child.start()
    try:
        answer = answers.get(timeout=TIMEOUT)
        done.set()
        child.join(TIMEOUT)
        assert child.exitcode == 0
        return answer
    finally:
        child.kill()


def _run(strategy, work, answers, done, arguments):
    mp.set_sharing_strategy(strategy)
    work(answers, *arguments)
    done.wait(TIMEOUT)  # the parent fetches descriptors from this process


def _double(answers, x):
    before = x.tolist()
    x.mul_(2)
    torch.flagos.synchronize()
    answers.put((str(x.device), before))


@pytest.mark.needs("shared_memory")
@pytest.mark.usefixtures("strategy")
def test_what_the_child_writes_is_seen_here():
    x = torch.arange(6.0, device="flagos").reshape(2, 3)
    device, before = _in_child(_double, x)
    assert device == "flagos:0" and before == [[0, 1, 2], [3, 4, 5]]
    assert x.tolist() == [[0, 2, 4], [6, 8, 10]]


def _fill_views(answers, first, second, other):
    first.fill_(7)
    torch.flagos.synchronize()
    same = first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
    answers.put((same, second.tolist(), other.tolist(), first.stride(), first.storage_offset()))


@pytest.mark.needs("shared_memory")
def test_views_stay_views_of_one_storage():
    base = torch.zeros(4, 4, dtype=torch.int32, device="flagos")
    same, second, other, stride, offset = _in_child(
        _fill_views, base.t()[1:3], base, torch.ones(2, device="flagos")
    )
    assert same and stride == (1, 4) and offset == 1
    assert second == base.tolist() == [[0, 7, 7, 0]] * 4 and other == [1, 1]


def _answer(answers):
    answers.put(
        {"x": torch.full((3,), 5, device="flagos"), "empty": torch.ones(0, 2, device="flagos")}
    )


@pytest.mark.needs("shared_storage")
def test_a_tensor_made_by_the_child_arrives():
    answer = _in_child(_answer)
    assert answer["x"].device == torch.device("flagos", 0) and answer["x"].tolist() == [5, 5, 5]
    assert answer["empty"].device.type == "flagos" and answer["empty"].shape == (0, 2)


def _return(answers, x):
    answers.put(x)


@pytest.mark.needs("shared_storage")
@pytest.mark.usefixtures("strategy")
def test_a_tensor_that_comes_back_is_the_same_memory():
    x = torch.zeros(3, device="flagos")
    back = _in_child(_return, x)
    assert back.untyped_storage()._cdata == x.untyped_storage()._cdata
    back.fill_(4)
    assert x.tolist() == [4, 4, 4]


def _train(answers, model):
    tied = model[0].weight is model[1].weight or (
        model[0].weight.untyped_storage()._cdata == model[1].weight.untyped_storage()._cdata
    )
    kinds = [(type(p) is nn.Parameter, p.requires_grad) for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    model(torch.ones(1, 2, device="flagos")).sum().backward()
    optimizer.step()
    torch.flagos.synchronize()
    answers.put((tied, kinds))


@pytest.mark.needs("shared_memory")
def test_a_module_trained_by_the_child_is_trained_here():
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.BatchNorm1d(2)).to("flagos").eval()
    model[1].weight = model[0].weight
    model[2].weight.requires_grad_(False)
    expected = copy.deepcopy(model)
    before = [p.clone() for p in model.parameters()]
    tied, kinds = _in_child(_train, model.share_memory())
    assert tied and kinds == [(True, p.requires_grad) for p in model.parameters()]
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.5)
    expected(torch.ones(1, 2, device="flagos")).sum().backward()
    optimizer.step()
    changed = [not torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True)]
    assert any(changed)
    for trained, wanted in zip(model.parameters(), expected.parameters(), strict=True):
        assert torch.equal(trained, wanted)


@pytest.mark.needs("shared_storage")
@pytest.mark.usefixtures("strategy")
def test_share_memory_moves_once_and_keeps_what_is_there():
    x = torch.arange(5, device="flagos")
    view = x[2:]
    assert not x.is_shared()
    assert x.share_memory_() is x
    address = x.data_ptr()
    assert x.is_shared() and view.is_shared() and view.data_ptr() == address + 16
    x.add_(1)
    assert x.share_memory_().data_ptr() == address
    assert view.tolist() == [3, 4, 5]
    with pytest.raises(RuntimeError, match="not resizable"):
        x.resize_(1000)
    assert torch.ones(2).is_shared() is False and torch.ones(2).share_memory_().is_shared()


@pytest.mark.needs("shared_memory")
def test_a_queued_copy_arrives_before_the_move(run_python):
    script = """
    import torch
    source = torch.arange(1 << 16, dtype=torch.float32).pin_memory()
    for _ in range(20):
        x = torch.zeros(1 << 16, device="flagos")
        x.copy_(source, non_blocking=True)
        assert torch.equal(x.share_memory_().cpu(), source)
    print("ok")
    """
    assert run_python(script, FLAGOS_HOST_DELAY_US="3000").stdout.strip() == "ok"


@pytest.mark.needs("shared_memory")
@pytest.mark.usefixtures("two_devices")
def test_the_device_is_kept():
    x = torch.ones(2, device="flagos:1")
    answer = _in_child(_double, x)
    assert answer == ("flagos:1", [1, 1]) and x.tolist() == [2, 2]


@pytest.mark.needs("shared_storage")
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.eye(3).to_sparse(), id="coo"),
        pytest.param(lambda: torch.eye(3).to_sparse_csr(), id="csr"),
        pytest.param(lambda: torch.arange(3).to(torch.bfloat16), id="bfloat16"),
        pytest.param(lambda: torch.tensor(2 + 3j), id="complex scalar"),
    ],
)
def test_other_layouts_and_types(make):
    x = make()
    there = loads(ForkingPickler.dumps(x.to("flagos")))
    assert there.device.type == "flagos" and there.layout == x.layout and there.dtype == x.dtype
    assert torch.equal(there.cpu().to_dense(), x.to_dense())


def test_a_tensor_with_history_is_refused_as_on_the_cpu():
    x = torch.ones(2, device="flagos", requires_grad=True)
    with pytest.raises(RuntimeError, match="non-leaf"):
        ForkingPickler.dumps(x * 2)


@pytest.mark.needs("shared_storage")
def test_memory_from_outside_is_refused():
    x = torch.utils.dlpack.from_dlpack(torch.ones(2, device="flagos"))
    with pytest.raises(RuntimeError, match=r"outside.*clone"):
        x.share_memory_()
    assert x.clone().share_memory_().is_shared()


@pytest.mark.host
def test_a_forked_child_is_told_why_it_cannot_take_one(run_python):
    script = """
    import torch, torch.multiprocessing as mp
    def work(queue):
        try:
            queue.get()
        except RuntimeError as error:
            print(type(error).__name__, error, flush=True)
    x = torch.ones(2, device="flagos")
    context = mp.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=work, args=(queue,))
    child.start()
    queue.put(x)
    child.join(60)
    print("exit", child.exitcode, x.tolist())
    """
    out = run_python(script).stdout
    assert "ForkedError" in out and "spawn" in out and "exit 0 [1.0, 1.0]" in out


def test_storages_of_the_cpu_are_sent_as_ever():
    x = torch.arange(3)
    back = loads(ForkingPickler.dumps(x))
    back.fill_(9)
    assert x.tolist() == [9, 9, 9] and back.device.type == "cpu"
