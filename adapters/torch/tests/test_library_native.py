"""What torch offers around operators, on a vendor's library: other processes, DLPack.

On the example chip: a host access to device memory ends the process, so a test that passes has made none.
"""

from __future__ import annotations

import shutil

import pytest

from python.tests.chips import EXAMPLE, example_chip

pytestmark = pytest.mark.needs("compiler")


@pytest.mark.slow
def test_another_process_gets_a_copy(on_chip):
    # The child runs `back.put(x)`, which sends what it was sent.
    out = on_chip("""
import torch.multiprocessing as mp
context = mp.get_context("spawn")
for strategy in sorted(mp.get_all_sharing_strategies()):
    mp.set_sharing_strategy(strategy)
    back = context.Queue()
    x = torch.arange(6.0).to("flagos:1").reshape(2, 3)
    child = context.Process(target=back.put, args=(x.t()[1:],))
    child.start()
    y = back.get(timeout=120)
    child.join()
    assert child.exitcode == 0
    assert y.device == x.device and y.stride() == (1, 3) and y.storage_offset() == 1
    assert y.tolist() == [[1, 4], [2, 5]]
    y.fill_(7)
    assert x.tolist() == [[0, 1, 2], [3, 4, 5]]
    print(strategy)
""").stdout
    assert "file_system" in out.split()


REDUCED = """
from multiprocessing.reduction import ForkingPickler
from pickle import loads
"""


def test_what_one_message_has_stays_tied(on_chip):
    on_chip(
        REDUCED
        + """
x = torch.zeros(4, device="flagos")
whole, part = loads(ForkingPickler.dumps((x, x[2:])))
part.fill_(7)
assert whole.tolist() == [0, 0, 7, 7] and x.tolist() == [0, 0, 0, 0]
model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)).to("flagos")
model[1].weight = model[0].weight
there = loads(ForkingPickler.dumps(model))
assert there[1].weight is there[0].weight and type(there[0].weight) is torch.nn.Parameter
assert torch.equal(there[0].bias.cpu(), model[0].bias.cpu())
"""
    )


def test_tensors_of_every_layout_are_sent(on_chip):
    on_chip(
        REDUCED
        + """
for x in (torch.eye(3).to_sparse(), torch.eye(3).to_sparse_csr(), torch.arange(3).to(torch.bfloat16),
          torch.tensor(2 + 3j), torch.ones(0, 2), torch.ones(5, dtype=torch.uint8), torch.tensor([True])):
    there = loads(ForkingPickler.dumps(x.to("flagos")))
    assert there.device.type == "flagos" and there.layout == x.layout and there.dtype == x.dtype
    assert there.shape == x.shape and torch.equal(there.cpu().to_dense(), x.to_dense())
try:
    ForkingPickler.dumps(torch.ones(2, device="flagos", requires_grad=True) * 2)
except RuntimeError as error:
    assert "non-leaf" in str(error), error
else:
    raise AssertionError("sent")
"""
    )


def test_what_other_streams_compute_is_sent(on_chip):
    on_chip(
        REDUCED
        + """
import threading
stream = torch.Stream(device="flagos:0")
for _ in range(20):
    with stream:
        x = torch.zeros(1 << 16, device="flagos")
        for _ in range(20):
            x += 1
    sent = []
    sender = threading.Thread(target=lambda: sent.append(ForkingPickler.dumps(x)))
    sender.start()
    sender.join()
    assert loads(sent[0]).cpu().eq(20).all()
"""
    )


def test_memory_is_never_shared_and_says_so(on_chip):
    on_chip("""
from flagos import UnsupportedError
x = torch.ones(2, device="flagos")
assert not x.is_shared() and not x.untyped_storage().is_shared()
for share in (x.share_memory_, x.untyped_storage().share_memory_, torch.nn.Linear(1, 1).to("flagos").share_memory):
    try:
        share()
    except UnsupportedError as error:
        assert "vendor 'example'" in str(error) and "x.cpu().share_memory_()" in str(error), error
    else:
        raise AssertionError("shared")
assert torch.ones(2).share_memory_().is_shared()
""")


def test_a_forked_child_is_told_why_it_cannot_take_a_tensor(on_chip):
    out = on_chip("""
import torch.multiprocessing as mp
def work(queue):
    try:
        queue.get()
    except FlagosError as error:
        print(type(error).__name__, error, flush=True)
x = torch.ones(2, device="flagos")
context = mp.get_context("fork")
queue = context.SimpleQueue()
child = context.Process(target=work, args=(queue,))
child.start()
queue.put(x)
child.join(60)
print("exit", child.exitcode, x.tolist())
""").stdout
    assert "ForkedError" in out and "spawn" in out and "exit 0 [1.0, 1.0]" in out


# ---- DLPack

CAPSULES = """
import ctypes
import numpy
from torch.utils.dlpack import DLDeviceType, to_dlpack

def device_of(capsule, name=b"dltensor"):
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = get(capsule, name) + (40 if name.endswith(b"versioned") else 8)
    return tuple((ctypes.c_int32 * 2).from_address(at))

def refused(call):
    try:
        return f"gave {call()}"
    except BufferError as error:
        return "BufferError"

x = torch.arange(6.0).to("flagos:1").reshape(2, 3)[:, 1:]
taken = torch.from_dlpack(x)
assert taken.device == x.device and taken.stride() == x.stride() and taken.data_ptr() == x.data_ptr()
taken += 1
assert x.tolist() == [[2, 3], [5, 6]]
assert torch.from_dlpack(to_dlpack(x)).tolist() == x.tolist()
assert torch.from_dlpack(x, device="cpu").device.type == "cpu"
assert torch.from_dlpack(x, copy=True).data_ptr() != x.data_ptr()
"""

COPIES = """
assert refused(lambda: numpy.from_dlpack(x)) == "BufferError"
assert numpy.from_dlpack(x, device="cpu").tolist() == x.tolist()
here = x.__dlpack__(dl_device=(DLDeviceType.kDLCPU, 0))
assert device_of(here) == (1, 0) and torch.from_dlpack(here).tolist() == x.tolist()
"""


def test_dlpack_gives_the_memory_to_those_who_know_the_device(on_chip):
    on_chip(
        CAPSULES
        + COPIES
        + """
assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
assert device_of(x.__dlpack__()) == (12, 1)
assert device_of(x.__dlpack__(max_version=(1, 0)), b"dltensor_versioned") == (12, 1)
assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
"""
    )


def test_numpy_gets_no_device_memory(on_chip):
    on_chip("""
import numpy
x = torch.ones(3, device="flagos")
for take in (lambda: x.numpy(), lambda: numpy.asarray(x), lambda: memoryview(x)):
    try:
        take()
    except TypeError as error:
        assert "x.cpu" in str(error) or "Tensor.cpu()" in str(error) or "bytes-like" in str(error), error
    else:
        raise AssertionError("taken")
assert numpy.asarray(x.cpu()).tolist() == [1, 1, 1]
assert x.untyped_storage().tolist() == [0, 0, 128, 63] * 3
""")


@pytest.fixture
def chip_of_type(tmp_path):
    """The folder of an example chip whose memory has another `DLDeviceType`."""

    def make(number: int) -> str:
        sources = shutil.copytree(EXAMPLE, tmp_path / f"sources{number}")
        code = (sources / "chip.c").read_text()
        changed = code.replace(".dlpack_device_type = 12", f".dlpack_device_type = {number}")
        assert changed != code
        (sources / "chip.c").write_text(changed)
        folder = tmp_path / f"vendors{number}"
        folder.mkdir()
        return str(example_chip(folder, sources))

    return make


@pytest.mark.parametrize(
    "number", [2, 14, 18]
)  # of CUDA, of oneAPI, and one that torch has no name for
def test_dlpack_tells_other_libraries_the_vendors_own_type(on_chip, chip_of_type, number):
    on_chip(
        CAPSULES
        + COPIES
        + f"""
assert x.__dlpack_device__() == ({number}, 1)
assert device_of(x.__dlpack__()) == ({number}, 1)
assert device_of(x.__dlpack__(dl_device=({number}, 1))) == ({number}, 1)
assert device_of(x.__dlpack__(max_version=(1, 0), stream=1), b"dltensor_versioned") == ({number}, 1)
""",
        FLAGOS_VENDOR_PATH=chip_of_type(number),
    )


def test_dlpack_never_calls_device_memory_the_hosts(on_chip, chip_of_type):
    script = CAPSULES + COPIES + "assert x.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)"
    on_chip(script, FLAGOS_VENDOR_PATH=chip_of_type(1))


def test_another_librarys_stream_waits(on_chip):
    on_chip("""
stream = torch.Stream(device="flagos:0")
with stream:
    x = torch.ones(1 << 20, device="flagos")
    for _ in range(50):
        x = x + x.relu()
    x.__dlpack__(stream=1)
    assert stream.query()
""")


# ---- torch.compile


@pytest.mark.slow
def test_compilers_without_code_generation_give_the_same(on_chip):
    on_chip("""
def step(x, y):
    z = (x @ y).relu()
    if z.sum() > 1e6:                          # breaks the graph
        return z
    z = z + torch.arange(4, device=x.device) * z.mean(0, keepdim=True)
    return torch.nn.functional.layer_norm(z.t(), (z.shape[0],)), z.cos()

for backend in ("eager", "aot_eager", "aot_eager_decomp_partition"):
    torch._dynamo.reset()
    compiled = torch.compile(step, backend=backend)
    for rows in (4, 6):                        # the second time with dynamic shapes
        x, y = torch.randn(rows, 4, requires_grad=True), torch.randn(4, 4)
        there = device(x)
        results, expected = compiled(there, device(y)), step(x, y)
        sum(result.sum() for result in results).backward()
        sum(result.sum() for result in expected).backward()
        for result, wanted in zip((*results, there.grad), (*expected, x.grad)):
            close(result.detach(), wanted.detach())
            assert result.stride() == wanted.stride(), backend

torch._dynamo.reset()
class Model(torch.nn.Sequential):
    def forward(self, x):                      # torch 2.13 compiles no module that is torch's own from end to end
        return super().forward(x)
model = Model(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 1)).to("flagos")
x = torch.randn(3, 4).to("flagos")
with torch.autocast("flagos", dtype=torch.bfloat16):
    expected = model(x)
    model.compile(backend="aot_eager", fullgraph=True)
    same(model(x), expected.cpu())
program = torch.export.export(torch.nn.Linear(2, 2).to("flagos"), (torch.ones(1, 2, device="flagos"),))
assert program.module()(torch.ones(1, 2, device="flagos")).device.type == "flagos"
""")


@pytest.mark.slow
def test_inductor_says_that_it_has_no_code_for_the_chip(on_chip):
    on_chip("""
import torch._inductor
from flagos import UnsupportedError
from torch.nn.attention.flex_attention import flex_attention

def refused(call, *inputs):
    torch._dynamo.reset()
    try:
        call(*inputs)
    except (UnsupportedError, torch._dynamo.exc.BackendCompilerFailed) as error:
        said = str(error)
        return "no code for devices of vendor 'example'" in said and "aot_eager" in said
    return False

x = torch.randn(4, 4)
assert refused(torch.compile(lambda x: (x @ x).sum() + 1), x.to("flagos"))
assert refused(torch.compile(lambda x: x + 1, mode="reduce-overhead"), x.to("flagos"))
assert refused(torch.compile(lambda x: x + 1, backend="flagos"), x.to("flagos"))
assert refused(torch.compile(lambda x: x.to("flagos").cos()), x)
assert refused(torch.compile(lambda: torch.ones(3, device="flagos")))
assert refused(torch.compile(lambda x: x.cpu() + 1), x.to("flagos"))
q = torch.randn(1, 2, 16, 8).to("flagos")
assert refused(torch.compile(flex_attention), q, q, q)
program = torch.export.export(torch.nn.Linear(2, 2).to("flagos"), (torch.ones(1, 2, device="flagos"),))
assert refused(torch._inductor.aoti_compile_and_package, program)
""")


@pytest.mark.slow
def test_inductor_compiles_for_the_cpu_as_ever(on_chip, tmp_path):
    on_chip(
        "x = torch.randn(8)\n"
        "torch.testing.assert_close(torch.compile(lambda x: x.cos() + 1)(x), x.cos() + 1)\n",
        TORCHINDUCTOR_CACHE_DIR=str(tmp_path),
    )


# ---- around a program


def test_saved_tensors_come_back_to_the_device_that_is_asked_for(on_chip):
    on_chip("""
import copy, io, pickle
model = torch.nn.Linear(3, 2).to("flagos")
saved = {"model": model.state_dict(), "x": torch.arange(3).to("flagos:1"), "weight": model.weight}
kept = model.weight.detach().cpu()
for where, devices in (
    (None, ("flagos:0", "flagos:1")),
    ("cpu", ("cpu", "cpu")),
    ("flagos:1", ("flagos:1", "flagos:1")),
    ({"flagos:0": "flagos:1"}, ("flagos:1", "flagos:1")),
    (lambda storage, place: storage, ("cpu", "cpu")),
):
    for safe in (True, False):
        file = io.BytesIO()
        torch.save(saved, file)
        file.seek(0)
        loaded = torch.load(file, map_location=where, weights_only=safe)
        assert (str(loaded["weight"].device), str(loaded["x"].device)) == devices, where
        assert torch.equal(loaded["weight"].cpu(), kept) and loaded["x"].tolist() == [0, 1, 2]
        tied = loaded["model"]["weight"].untyped_storage()._cdata == loaded["weight"].untyped_storage()._cdata
        assert tied and torch.equal(loaded["model"]["weight"].cpu(), kept)
apart = copy.deepcopy(model)
apart.weight.data.zero_()
assert torch.equal(model.weight.detach().cpu(), kept)
assert pickle.loads(pickle.dumps(model.weight)).device.type == "flagos"
""")


def test_batches_are_pinned_for_the_chip(on_chip):
    on_chip("""
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(12.0).reshape(6, 2))
for workers in (0, 1):
    batches = [batch for (batch,) in DataLoader(data, batch_size=2, pin_memory=True, num_workers=workers)]
    assert all(batch.is_pinned() for batch in batches)
    moved = [batch.to("flagos", non_blocking=True).sum().item() for batch in batches]
    assert moved == [6, 22, 38]
""")


def test_workers_that_are_spawned_get_copies_of_the_data(on_chip):
    on_chip("""
from torch.utils.data import DataLoader, TensorDataset
data = TensorDataset(torch.arange(12.0).to("flagos").reshape(6, 2))
loader = DataLoader(data, batch_size=3, num_workers=1, multiprocessing_context="spawn")
batches = [batch for (batch,) in loader]
assert [str(batch.device) for batch in batches] == ["flagos:0"] * 2
assert torch.cat(batches).tolist() == torch.arange(12.0).reshape(6, 2).tolist()
""")


def test_generators_draw_the_numbers_of_the_cpus(on_chip):
    on_chip("""
there, here = torch.Generator(device="flagos").manual_seed(3), torch.Generator().manual_seed(3)
assert there.device == torch.device("flagos", 0)
same(torch.randn(9, device="flagos", generator=there), torch.randn(9, generator=here))
state = there.get_state()
numbers = torch.rand(4, device="flagos", generator=there)
there.set_state(state)
same(torch.rand(4, device="flagos", generator=there), numbers.cpu())
with torch.random.fork_rng(devices=[0, 1], device_type="flagos"):
    torch.flagos.manual_seed_all(5)
    inside = torch.rand(4, device="flagos").cpu()
before = torch.flagos.get_rng_state()
torch.flagos.manual_seed(5)
same(torch.rand(4, device="flagos"), inside)
torch.flagos.set_rng_state(before)
try:
    torch.randn(3, device="flagos", generator=here)
except RuntimeError as error:
    assert "torch.Generator(device=\\"flagos\\")" in str(error), error
else:
    raise AssertionError("drawn")
""")


def test_mixed_precision_trains(on_chip):
    on_chip("""
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8), torch.nn.Linear(8, 1)).to("flagos")
optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=0.1), torch.amp.GradScaler("flagos")
x, losses = torch.randn(16, 4).to("flagos"), []
for _ in range(8):
    optimizer.zero_grad()
    with torch.autocast("flagos", dtype=torch.float16):
        result = model(x)
    assert result.dtype == torch.float16
    loss = (result.float() - 1).square().mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses
""")


def test_the_profiler_sees_operators_on_the_host_and_on_the_chip(on_chip, tmp_path):
    on_chip(
        f"""
from torch.profiler import ProfilerActivity, profile, record_function
x = torch.ones(64, 64, device="flagos")
with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen, record_function("mine"):
    (x @ x).relu()
events = {{event.key: event for event in seen.key_averages()}}
assert {{"mine", "aten::mm", "aten::relu"}} <= set(events)
assert events["aten::mm"].count == 1 and events["aten::mm"].device_memory_usage == 64 * 64 * 4
seen.export_chrome_trace({str(tmp_path / "trace.json")!r})
with torch.autograd.profiler.profile(use_device="flagos") as seen:
    x @ x
assert {{event.key: event for event in seen.key_averages()}}["aten::mm"].device_time_total > 0
"""
    )
    assert "aten::mm" in (tmp_path / "trace.json").read_text()


def test_memory_is_counted_and_limited(on_chip):
    on_chip("""
from flagos import UnsupportedError
memory = torch.flagos.memory
x = torch.ones(1024, device="flagos")
assert memory.memory_allocated() == 4096 == memory.memory_stats()["allocated_bytes.all.current"]
assert memory.memory_reserved() >= 4096 and memory.mem_get_info()[1] == 1 << 30
assert "Example Chip 0" in memory.memory_summary()
(segment,) = memory.memory_snapshot()
assert segment["allocated_size"] == 4096
del x
memory.empty_cache()
assert memory.memory_reserved() == memory.memory_allocated() == 0 and memory.max_memory_allocated() == 4096
memory.set_per_process_memory_fraction(0.001)
for count in (1 << 20, 1 << 33):
    try:
        torch.empty(count, device="flagos")
    except torch.OutOfMemoryError as error:
        assert "example device 0" in str(error), error
    else:
        raise AssertionError("allocated")
try:
    torch.flagos.MemPool()
except UnsupportedError as error:
    assert "vendor 'example'" in str(error), error
else:
    raise AssertionError("done")
""")


def test_streams_without_handles_say_so(on_chip):
    """The example chip's library has none. Ascend's: `core/vendors/ascend/tests/triton_ascend`."""
    on_chip("""
from flagos import UnsupportedError
from torch_fl.native import native
torch.zeros(1, device="flagos")
for device in (None, 0):
    try:
        native().stream_handle(device)
    except UnsupportedError as error:
        assert "streams of vendor 'example' have no handles" in str(error), error
    else:
        raise AssertionError("there is a handle")
""")
