"""Memory, streams, events and copies on CUDA are torch's own, under the name flagos."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import torch

import torch_fl

pytestmark = pytest.mark.cuda


def spin(milliseconds: float) -> None:
    """Keeps the current stream busy."""
    torch.cuda._sleep(int(milliseconds * 1.5e6))


def test_the_vendor_is_cuda() -> None:
    properties = torch.flagos.get_device_properties(0)
    assert properties.vendor == "cuda"
    assert properties.name == torch.cuda.get_device_name(0)
    assert torch.flagos.device_count() == torch.cuda.device_count()
    assert torch.flagos.get_device_capability(0) == torch.cuda.get_device_capability(0)


def test_one_pool() -> None:
    torch.flagos.synchronize()
    before = torch.cuda.memory_allocated()
    tensor = torch.empty(1 << 20, device="flagos")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    assert torch.flagos.memory_allocated() == torch.cuda.memory_allocated()
    del tensor
    assert torch.cuda.memory_allocated() == before
    assert torch.flagos.memory_stats()["allocated_bytes.all.current"] == before
    assert torch.flagos.mem_get_info()[1] == torch.cuda.mem_get_info()[1]
    assert torch.flagos.max_memory_allocated() == torch.cuda.max_memory_allocated()
    assert torch.flagos.memory_snapshot() is not None
    assert "Allocated memory" in torch.flagos.memory_summary()


def test_current_stream_is_cudas() -> None:
    side = torch.flagos.Stream(device="flagos:0")
    assert torch.cuda.current_stream().stream_id == torch.flagos.current_stream().stream_id
    with torch.flagos.stream(side):
        assert torch.cuda.current_stream().stream_id == side.stream_id
        assert torch.flagos.current_stream() == side
    cuda_side = torch.cuda.Stream()
    with torch.cuda.stream(cuda_side):
        assert torch.flagos.current_stream().stream_id == cuda_side.stream_id
    assert torch.flagos.current_stream() == torch.flagos.default_stream()


def test_events_time_the_device() -> None:
    start, end = (torch.flagos.Event(enable_timing=True) for _ in range(2))
    start.record()
    spin(20)
    end.record()
    assert not end.query()
    end.synchronize()
    assert 5 < start.elapsed_time(end) < 200


def test_streams_wait_for_each_other() -> None:
    main, side = torch.flagos.current_stream(), torch.flagos.Stream(device="flagos:0")
    x = torch.zeros(1 << 16, device="flagos")
    for _ in range(20):
        spin(1)
        x.add_(1)
        side.wait_stream(main)
        with torch.flagos.stream(side):
            spin(1)
            x.mul_(2)
        main.wait_stream(side)
        x.sub_(x.clone() / 2)
    torch.flagos.synchronize()
    expected = 0.0
    for _ in range(20):
        expected = (expected + 1) * 2
        expected -= expected / 2
    assert torch.all(x == expected)


def test_record_stream_keeps_memory_from_reuse() -> None:
    side = torch.flagos.Stream(device="flagos:0")
    failures = 0
    for _ in range(20):
        x = torch.full((1 << 20,), 7.0, device="flagos")
        side.wait_stream(torch.flagos.current_stream())
        with torch.flagos.stream(side):
            spin(2)
            y = x + 1
        x.record_stream(side)
        del x
        z = torch.zeros(1 << 20, device="flagos")
        side.synchronize()
        failures += int(not torch.all(y == 8.0))
        del z
    assert failures == 0


def test_pinned_copies_overlap() -> None:
    host = torch.randn(1 << 24).pin_memory()
    assert host.is_pinned()
    device = torch.empty(1 << 24, device="flagos")
    side = torch.flagos.Stream(device="flagos:0")
    torch.flagos.synchronize()
    began = time.perf_counter()
    spin(50)
    with torch.flagos.stream(side):
        device.copy_(host, non_blocking=True)
    submitted = time.perf_counter() - began
    side.synchronize()
    copied = time.perf_counter() - began
    torch.flagos.synchronize()
    finished = time.perf_counter() - began
    assert submitted < 0.01, "the copy made the host wait"
    assert copied < finished / 2, f"the copy ended after {copied:.4f} s of {finished:.4f} s"
    assert torch.equal(device.cpu(), host)


def test_zero_copy_views() -> None:
    x = torch.arange(12.0, device="flagos").view(3, 4)
    on_cuda = x.t().to("cuda")
    assert on_cuda.device.type == "cuda" and on_cuda.data_ptr() == x.data_ptr()
    assert on_cuda.stride() == (1, 4)
    on_cuda.add_(1)
    assert x[0, 0].item() == 1 and x._version == on_cuda._version > 0
    back = on_cuda.to("flagos")
    assert back.device.type == "flagos" and back.data_ptr() == x.data_ptr()
    copied = x.to("cuda", copy=True)
    assert copied.data_ptr() != x.data_ptr() and torch.equal(copied, x.to("cuda"))
    assert on_cuda.to("flagos", copy=True).data_ptr() != x.data_ptr()
    assert x.to("cuda", torch.float16).dtype == torch.float16


def test_gradients_cross_between_cuda_and_flagos() -> None:
    x = torch.randn(8, 8, device="flagos", requires_grad=True)
    (x.to("cuda") * 3).sin().to("flagos").sum().backward()
    assert x.grad is not None and x.grad.device.type == "flagos"
    expected = 3 * torch.cos(3 * x.detach())
    torch.testing.assert_close(x.grad, expected)


def test_a_write_through_a_view_is_noticed_by_autograd() -> None:
    x = torch.randn(4, device="flagos", requires_grad=True)
    y = x * 2
    z = y.exp()
    z.detach().to("cuda").zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()


def test_other_libraries_take_flagos_tensors() -> None:
    cupy = pytest.importorskip("cupy")
    x = torch.arange(6.0, device="flagos")
    taken = cupy.from_dlpack(x)
    taken += 1
    assert x[0].item() == 1
    as_array = cupy.asarray(x)
    as_array *= 2
    cupy.cuda.runtime.deviceSynchronize()
    assert x.tolist() == [2, 4, 6, 8, 10, 12]
    numba = pytest.importorskip("numba.cuda")
    assert numba.as_cuda_array(x).shape == (6,)


def test_triton_takes_flagos_tensors() -> None:
    triton = pytest.importorskip("triton")
    from tests.gpu.kernels import add_one

    x = torch.arange(1000.0, device="flagos")
    add_one[(triton.cdiv(1000, 256),)](x, 1000, BLOCK=256)
    assert torch.equal(x.cpu(), torch.arange(1000.0) + 1)


def test_a_stream_another_library_made() -> None:
    theirs = torch.cuda.Stream()
    external = torch.flagos.ExternalStream(theirs.cuda_stream)
    assert torch.cuda.ExternalStream(theirs.cuda_stream).stream_id == external.stream_id
    x = torch.zeros(1 << 20, device="flagos")
    x += 0  # the kernel is loaded
    torch.flagos.synchronize()
    with torch.flagos.stream(external):
        assert torch.cuda.current_stream().cuda_stream == theirs.cuda_stream
        spin(500)
        x += 1
    assert not theirs.query()  # the work went to this stream
    theirs.synchronize()
    assert x.sum().item() == 1 << 20


def test_expandable_segments() -> None:
    program = """
import torch
x = [torch.ones(5 << 20, dtype=torch.uint8, device="flagos") for _ in range(9)]
segments = torch.flagos.memory_snapshot()
assert segments and all(segment["is_expandable"] for segment in segments), segments
del x
torch.flagos.empty_cache()
assert torch.flagos.memory_reserved() == 0
print("expanded")
"""
    environment = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "expanded", done.stderr


def test_registered_operators_are_named_cuda() -> None:
    assert torch_fl.explain("aten::mm").data["winner"] == "cuda.native"


def test_gradients_of_views_are_not_shared() -> None:
    a, b = (torch.ones(4, device="flagos", requires_grad=True) for _ in range(2))
    for _ in range(2):
        total = a.to("cuda") + b.to("cuda")
        (total * total).sum().backward()
    assert a.grad is not None and b.grad is not None
    assert a.grad.tolist() == b.grad.tolist() == [8.0] * 4


def test_pinned_memory_is_pinned_for_cuda_too() -> None:
    host = torch.empty(4).pin_memory()
    assert host.is_pinned() and host.untyped_storage().is_pinned()


def test_cuda_graphs_behind_edges_and_the_cpu_are_differentiated() -> None:
    for use_edge in (False, True):
        x = torch.ones(3, device="cuda", requires_grad=True)
        loss = (x * 2).cpu().sum()
        root = torch.autograd.graph.get_gradient_edge(loss) if use_edge else loss
        torch.autograd.backward(root, torch.tensor(1.0))
        assert x.grad is not None and x.grad.tolist() == [2.0] * 3


def test_a_graph_over_both_on_a_side_stream_is_refused() -> None:
    w = torch.ones(8, device="cuda", requires_grad=True)
    side = torch.flagos.Stream(device="flagos:0")
    side.wait_stream(torch.flagos.current_stream())
    with torch.flagos.stream(side):
        loss = (w.to("flagos").sin() * 3).sum()
        with pytest.raises(NotImplementedError, match="default stream"):
            loss.backward()
    torch.flagos.synchronize()


def test_generators_of_cuda_and_flagos_are_told_apart() -> None:
    ours, theirs = torch.Generator("flagos"), torch.Generator("cuda")
    with pytest.raises(RuntimeError, match="flagos"):
        ours.graphsafe_set_state(theirs)


def test_the_cpu_serves_what_is_routed_there() -> None:
    x = torch.randn(8, device="flagos")
    with torch_fl.route({"mul.Tensor": "cpu"}):
        y = torch.tensor(2.0) * x
    assert y.device == x.device and torch.equal(y.cpu(), 2 * x.cpu())
    assert torch_fl.counters()["aten::mul.Tensor"]["fallbacks"] > 0
    w = torch.ones(2, device="flagos", requires_grad=True)
    v = torch.ones(2, device="flagos")
    product = w * v
    with torch_fl.route({"_foreach_mul_.Scalar": "cpu"}):
        torch._foreach_mul_([v], 5.0)
    assert v.tolist() == [5.0, 5.0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.sum().backward()


def test_cuda_and_flagos_tensors_do_not_mix() -> None:
    with pytest.raises(RuntimeError, match="same device"):
        torch.ones(3, device="flagos") + torch.ones(3, device="cuda")


def test_a_generator_of_cuda_draws_for_flagos() -> None:
    """A plugin that boxes calls to cuda accepts CUDA's generators, and so does flagos."""
    ours = torch.Generator(device="flagos").manual_seed(9)
    theirs = torch.Generator(device="cuda").manual_seed(9)
    drawn = torch.empty(64, device="flagos").normal_(generator=theirs)
    assert torch.equal(drawn, torch.empty(64, device="flagos").normal_(generator=ours))
    assert torch.rand(8, device="flagos", generator=theirs).device.type == "flagos"
