"""What torch offers around operators, on a vendor's library: other processes, DLPack.

On the example chip: a host access to device memory ends the process, so a test that passes has made none.
"""

from __future__ import annotations

import shutil

import pytest

from adapters.torch.tests.conftest import EXAMPLE, compile_chip

pytestmark = pytest.mark.needs("compiler")


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
        return str(compile_chip(folder, sources))

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
