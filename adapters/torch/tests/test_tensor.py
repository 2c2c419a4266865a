"""Tensors and storages on the device."""

from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

DTYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.complex64,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_survive_the_way_there_and_back(dtype):
    x = torch.arange(6).reshape(2, 3).to(dtype)
    there = x.to("flagos")
    assert there.dtype == dtype
    assert torch.equal(there.cpu(), x)


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param(lambda x: x.t(), id="transposed"),
        pytest.param(lambda x: x[:, ::2], id="strided"),
        pytest.param(lambda x: x.expand(3, *x.shape), id="expanded"),
        pytest.param(
            lambda x: x[None, None].to(memory_format=torch.channels_last), id="channels last"
        ),
    ],
)
def test_strides_survive(layout):
    x = layout(torch.randn(4, 6))
    assert x.to("flagos").stride() == x.to("meta").stride()
    assert torch.equal(x.to("flagos").cpu(), x)


@pytest.mark.parametrize(
    "move",
    [
        pytest.param(lambda x: x.flagos(), id="flagos()"),
        pytest.param(lambda x: x.flagos(0), id="flagos(0)"),
        pytest.param(lambda x: x.flagos("flagos:0"), id="flagos('flagos:0')"),
        pytest.param(lambda x: x.to(device="flagos"), id="to"),
        pytest.param(lambda x: x.to("flagos", non_blocking=True), id="non blocking"),
        pytest.param(lambda x: torch.as_tensor(x, device="flagos"), id="as_tensor"),
        pytest.param(lambda x: torch.tensor(x.tolist(), device="flagos"), id="tensor"),
        pytest.param(lambda x: torch.empty_like(x, device="flagos").copy_(x), id="copy_"),
    ],
)
def test_ways_to_the_device(move):
    x = torch.arange(5.0)
    there = move(x)
    assert there.is_flagos and torch.equal(there.cpu(), x)


def test_numpy_both_ways():
    there = torch.from_numpy(np.arange(4)).to("flagos")
    assert there.cpu().numpy().tolist() == [0, 1, 2, 3]
    with pytest.raises(TypeError, match="flagos"):
        there.numpy()


def test_numpy_scalars_and_lists():
    x = torch.arange(3, device="flagos")
    assert x.tolist() == [0, 1, 2] and x[1].item() == 1 and int(x[2]) == 2


def test_printing():
    text = repr(torch.tensor([1.5, 2.0], device="flagos", requires_grad=True))
    assert text == "tensor([1.5000, 2.0000], device='flagos:0', requires_grad=True)"


def test_type_names():
    x = torch.ones(2, device="flagos")
    assert x.type() == "torch.flagos.FloatTensor"


def test_views_share_storage():
    x = torch.zeros(4, 4, device="flagos")
    view = x[1:, 1:]
    view.fill_(1)
    assert x.sum().item() == 9
    assert view._base is x and view.data_ptr() != x.data_ptr()
    assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()


def test_in_place_writes_count_versions():
    x = torch.zeros(3, device="flagos")
    before = x._version
    x.add_(1)
    assert x._version == before + 1


def test_a_stale_version_stops_backward():
    x = torch.ones(3, device="flagos", requires_grad=True)
    y = x.exp()
    y.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_backward(native):
    x = torch.randn(4, 5)
    here, there = (x.to(device, copy=True).requires_grad_() for device in (native, "flagos"))
    for leaf in (here, there):
        (leaf.tanh() @ leaf.t()).logsumexp(0).sum().backward()
    assert there.grad.device.type == "flagos"
    assert torch.equal(there.grad.cpu(), here.grad.cpu())


def test_pinned_memory():
    x = torch.arange(10.0).pin_memory()
    assert x.is_pinned() and x.device.type == "cpu"
    assert not torch.arange(10.0).is_pinned()
    assert torch.equal(x.to("flagos", non_blocking=True).cpu(), x)


def test_allocating_pinned_memory():
    assert torch.empty(4, pin_memory=True).is_pinned()


def test_pinned_memory_is_pinned_for_a_program_that_used_flagos_first(run_python):
    """DistributedDataParallel asks where torch itself never opened the device."""
    script = """
    import torch
    torch.ones(2, device="flagos")
    print(torch.empty(4, pin_memory=True).is_pinned())
    """
    assert run_python(script).stdout.strip() == "True"


def test_resizing():
    x = torch.arange(4, device="flagos")
    x.resize_(2, 3)
    assert x.flatten()[:4].tolist() == [0, 1, 2, 3]
    x.untyped_storage().resize_(0)
    assert x.untyped_storage().nbytes() == 0


def test_resizing_a_storage_keeps_its_bytes():
    x = torch.arange(16.0, device="flagos")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(64)
    x.fill_(3)
    storage.resize_(128)
    assert x.tolist() == [3.0] * 16


def test_set_shares_the_other_storage():
    x, y = torch.zeros(2, device="flagos"), torch.ones(2, device="flagos")
    x.set_(y)
    y.fill_(5)
    assert x.tolist() == [5, 5]


def test_data_assignment():
    x = torch.zeros(2, device="flagos", requires_grad=True)
    x.data = torch.ones(3, device="flagos")
    assert x.tolist() == [1, 1, 1] and x.requires_grad


def test_storage_methods():
    storage = torch.ones(4).untyped_storage()
    there = storage.flagos()
    assert there.is_flagos and not storage.is_flagos
    assert there.device == torch.device("flagos", 0)
    assert there.cpu().tolist() == storage.tolist()


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: torch.randn(3, 4, device="flagos"), id="tensor"),
        pytest.param(lambda: torch.randn(3, 4, device="flagos").t(), id="view"),
        pytest.param(lambda: torch.nn.Parameter(torch.randn(3, device="flagos")), id="parameter"),
        pytest.param(
            lambda: torch.randn(3, device="flagos", dtype=torch.complex64).conj(), id="conj"
        ),
        pytest.param(lambda: torch.randn(3, 4, device="flagos").to_sparse(), id="sparse"),
    ],
)
def test_copies_are_equal_and_apart(make, duplicate):
    original = make()
    twin = duplicate(original)
    assert type(twin) is type(original)
    assert twin.device == original.device and twin.requires_grad == original.requires_grad
    assert torch.equal(twin.to_dense().cpu(), original.to_dense().cpu())
    if original.layout is torch.strided:
        assert twin.stride() == original.stride()
        assert twin.data_ptr() != original.data_ptr()


def test_copies_keep_sharing():
    x = torch.zeros(4, device="flagos")
    pair = copy.deepcopy([x, x[:2]])
    pair[0].fill_(3)
    assert pair[1].tolist() == [3, 3]


def test_subclasses_stay():
    class Tagged(torch.Tensor):
        pass

    x = torch.ones(2, device="flagos").as_subclass(Tagged)
    assert isinstance(x + x, Tagged)


def test_0_dim_cpu_tensors_mix():
    assert (torch.ones(2, device="flagos") * torch.tensor(3.0)).tolist() == [3, 3]


@pytest.mark.parametrize(
    "mix",
    [
        pytest.param(lambda a, b: a + b, id="add"),
        pytest.param(lambda a, b: a.add_(b), id="add_"),
        pytest.param(lambda a, b: a @ b, id="matmul"),
        pytest.param(lambda a, b: torch.cat([a, b]), id="cat"),
        pytest.param(lambda a, b: torch.add(a, a, out=b), id="out"),
        pytest.param(lambda a, b: torch.nn.functional.linear(a, b), id="linear"),
    ],
)
@pytest.mark.parametrize("order", [1, -1], ids=["flagos first", "cpu first"])
def test_cpu_and_flagos_tensors_do_not_mix(mix, order):
    pair = [torch.ones(3, 3, device="flagos"), torch.ones(3, 3)][::order]
    with pytest.raises(RuntimeError, match=r"same device|[Ee]xpected.*device"):
        mix(*pair)
    assert pair[0].sum().item() == 9 and pair[1].sum().item() == 9


def test_inference_mode():
    with torch.inference_mode():
        x = torch.ones(3, device="flagos") * 2
    assert x.is_inference() and x.sum().item() == 6


@pytest.mark.skipif(
    not hasattr(torch.Tensor, "names"), reason="torch has no named tensors since 2.13"
)
def test_named_tensors():
    x = torch.ones(2, 3, names=("N", "C"), device="flagos")
    assert x.sum("C").names == ("N",)


def test_quantized_tensors():
    x = torch.tensor([0.0, 0.5, 1.0], device="flagos")
    quantized = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
    assert quantized.device.type == "flagos"
    assert torch.allclose(quantized.dequantize(), x, atol=0.05)


class TestAliases:
    """A thread uses its aliases again: nothing of one call may be seen by the next."""

    def test_more_tensors_in_a_call_than_a_thread_keeps(self):
        parts = [torch.full((3,), float(i), device="flagos") for i in range(200)]
        for _ in range(2):
            assert torch.cat(parts).cpu().equal(torch.cat([part.cpu() for part in parts]))
            assert (parts[7] + parts[8]).tolist() == [15.0] * 3

    def test_calls_within_calls(self, native):
        """A derivative calls operators, whose hooks call others."""
        x = torch.randn(4, 4, device="flagos", requires_grad=True)
        seen = []
        x.register_hook(lambda gradient: seen.append((gradient @ gradient.t()).sum().item()))
        (x.exp() * x).sum().backward()
        there = x.detach().cpu().to(native).requires_grad_()
        (there.exp() * there).sum().backward()
        assert x.grad.cpu().equal(there.grad.cpu())
        assert seen == [(there.grad @ there.grad.t()).sum().item()]

    @pytest.mark.parametrize("first", [(2, 3), (), (0, 4), (1, 2, 3, 4, 5, 6, 7)])
    @pytest.mark.parametrize("second", [(5,), (2, 2, 2, 2, 2, 2)])
    def test_geometries_do_not_mix(self, first, second, native):
        for shape in (first, second, first):
            x = torch.randn(shape, device=native)
            y = x.cpu().to("flagos")
            expected, got = x.exp() + x, y.exp() + y
            assert got.cpu().equal(expected.cpu()) and got.stride() == expected.stride()
            z = y.clone().mul_(2).add_(y)
            assert z.shape == shape and z.cpu().equal((x * 2 + x).cpu())

    def test_what_a_failed_call_leaves(self):
        x, y = torch.ones(2, 3, device="flagos"), torch.ones(4, device="flagos")
        for _ in range(100):
            with pytest.raises(RuntimeError, match="size"):
                x.add_(y)
        assert x.mul_(3).tolist() == [[3.0] * 3] * 2

    def test_conjugates_between_others(self, native):
        x = torch.randn(3, dtype=torch.complex64, device=native)
        y = x.cpu().to("flagos")
        for _ in range(3):
            assert (y + 1).cpu().equal((x + 1).cpu())
            assert (y.conj() * y).cpu().equal((x.conj() * x).cpu())
            assert (y.real.neg() + y.imag).cpu().equal((x.real.neg() + x.imag).cpu())

    def test_memory_is_given_back_with_the_call(self):
        torch.flagos.synchronize()
        before = torch.flagos.memory_allocated()
        x = torch.ones(1 << 20, device="flagos")
        x.add_(1).mul_(2)
        torch.cat([x, x])
        del x
        assert torch.flagos.memory_allocated() == before

    def test_threads_share_tensors(self):
        x = torch.ones(256, 256, device="flagos")
        errors: list[str] = []

        def work(seed: int) -> None:
            generator = torch.Generator(device="flagos").manual_seed(seed)
            for _ in range(50):
                y = torch.randn(256, 256, generator=generator, device="flagos")
                if not torch.equal((x + y) - y - ((x + y) - y), torch.zeros_like(x)):
                    errors.append("wrong sum")
                if (x.view(-1)[:10] * 2).sum().item() != 20:
                    errors.append("wrong view")

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not errors

    def test_threads_end_with_theirs(self):

        def work():
            x = torch.ones(64, device="flagos")
            for _ in range(100):
                x = x * 1 + 0
            assert x.sum().item() == 64

        before = torch.flagos.memory_allocated()
        for _ in range(10):
            threads = [threading.Thread(target=work) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert torch.flagos.memory_allocated() == before


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_a_result_has_the_dispatch_keys_of_a_tensor_made_there(mode):
    with mode():
        made = torch.empty(2, 3, device="flagos")
        for result in (made + made, made.to(torch.float16), torch.stack([made, made]), made.sum()):
            assert torch._C._dispatch_keys(result) == torch._C._dispatch_keys(made)
        assert torch._C._dispatch_keys(made) != torch._C._dispatch_keys(torch.empty(2, 3))


def test_lazy_clone_is_a_copy_of_the_same_layout():
    base = torch.arange(12.0).reshape(3, 4)
    for theirs in (base, base.t(), base[1:, ::2], base.expand(2, 3, 4), base[:0]):
        ours = theirs.to("flagos") if theirs.is_contiguous() else base.to("flagos").as_strided(
            theirs.size(), theirs.stride(), theirs.storage_offset()
        )  # fmt: skip
        clone = torch._lazy_clone(ours)
        expected = torch._lazy_clone(theirs)
        assert clone.stride() == expected.stride()
        assert clone.storage_offset() == ours.storage_offset()
        assert torch.equal(clone.cpu(), expected)
        ours.fill_(-1) if ours.numel() and ours.dim() == 2 else None
        assert torch.equal(clone.cpu(), expected)


def test_the_gradient_of_a_lazy_clone_is_that_of_a_copy():
    x = torch.ones(3, device="flagos", requires_grad=True)
    torch._lazy_clone(x).square().sum().backward()
    assert x.grad.tolist() == [2.0, 2.0, 2.0]
