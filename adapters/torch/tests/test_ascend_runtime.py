"""The runtime of Ascend devices as torch programs meet it: graphs, failures, memory of other processes.

On the simulated runtime, which here has no kernels: what is neither a copy nor memory is computed by the CPU.
"""

from __future__ import annotations

import pytest

from adapters.torch.tests.refusals import REFUSED

pytestmark = pytest.mark.needs("compiler")


COPIES = """
host, back = torch.zeros(1024).pin_memory(), torch.zeros(1024).pin_memory()
x, y = (torch.empty(1024, device="flagos") for _ in range(2))
def capture():
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        x.copy_(host, non_blocking=True)
        inside = torch.empty(1024, device="flagos")
        inside.copy_(x)
        y.copy_(inside)
        back.copy_(y, non_blocking=True)
    return graph
def check(graph):
    for value in (1.0, 2.0):
        host.fill_(value)
        graph.replay()
        torch.flagos.synchronize()
        assert (back == value).all() and (y.cpu() == value).all()
"""


@pytest.mark.slow
@pytest.mark.parametrize("version", ["9.0", "8.1"])
def test_copies_of_ascend_are_captured(on_ascend, version):
    on_ascend(
        COPIES
        + """
for _ in range(3):
    graph = capture()
    check(graph)
check(graph)
""",
        SIMULATED_ASCEND_VERSION=version,
    )


def test_what_a_capture_of_ascend_forbids_is_named(on_ascend):
    on_ascend(
        COPIES
        + REFUSED
        + """
check(capture())
refused("aten::add.Tensor would be served by the CPU|vendor: ascend", lambda: x + 1)
refused("takes no copy of ordinary memory|aten::_local_scalar_dense failed", lambda: x[0].item())
refused("takes no copy of ordinary memory|pin the memory|aten::copy_ failed", lambda: x.cpu())
refused("nobody can wait for the device", torch.flagos.synchronize)
refused("nobody can wait for it", lambda: torch.flagos.current_stream().synchronize())
refused("a graph is being captured", torch.flagos.empty_cache)
check(capture())
"""
    )


def test_a_runtime_without_captures_is_named(on_ascend):
    on_ascend(
        """
for call in (torch.flagos.Graph, lambda: torch.flagos.graph(None), torch.flagos.graph_pool_handle,
             lambda: torch.flagos.make_graphed_callables(torch.nn.Linear(1, 1), ())):
    try:
        call()
    except NotImplementedError as error:
        said = str(error)
        assert "stream capture" in said and "has no aclmdlRIExecuteAsync" in said, said
        assert "run the region eagerly" in said, said
    else:
        raise AssertionError("made")
assert not torch.flagos.is_current_stream_capturing()
""",
        SIMULATED_ASCEND_HIDE="aclmdlRIExecuteAsync",
    )


def test_memory_of_ascend_that_has_run_out_is_torchs_error(on_ascend):
    on_ascend(
        """
kept = torch.empty(40 << 20, dtype=torch.uint8, device="flagos")
freed = torch.empty(15 << 20, dtype=torch.uint8, device="flagos")
del freed
large = torch.empty(20 << 20, dtype=torch.uint8, device="flagos")   # the cache is given back for it
assert torch.flagos.memory_stats()["num_alloc_retries"] == 1
try:
    torch.empty(30 << 20, dtype=torch.uint8, device="flagos")
except torch.OutOfMemoryError as error:
    said = str(error)
    assert "ascend device 0 has no room for 30.00 MiB" in said and "reserved" in said, said
else:
    raise AssertionError("there is no such memory")
del large
assert torch.empty(20 << 20, dtype=torch.uint8, device="flagos").numel() == 20 << 20
assert torch.flagos.memory_stats()["num_ooms"] == 1
""",
        SIMULATED_ASCEND_MEMORY="64M",
    )


@pytest.mark.parametrize("code", ["200000", "207018"])
def test_every_code_of_exhaustion_is_torchs_error(on_ascend, code):
    # Two sizes of a segment are asked for in each of three attempts.
    faults = ",".join(f"aclrtMallocAlign32={nth}:{code}" for nth in range(1, 7))
    on_ascend(
        f"""
try:
    torch.empty(1, device="flagos")
except torch.OutOfMemoryError as error:
    assert "({code})" in str(error) and "npu-smi" in str(error), error
else:
    raise AssertionError("allocated")
assert torch.empty(1, device="flagos").numel() == 1
""",
        SIMULATED_ASCEND_FAULT=faults,
    )


def test_work_that_fails_on_ascend_loses_the_device(on_ascend):
    on_ascend(
        """
from torch_fl.native import native
x, y = (torch.empty(1024, device="flagos") for _ in range(2))
host = torch.zeros(1024).pin_memory()
x.copy_(host, non_blocking=True)
torch.flagos.synchronize()
y.copy_(x)                      # fails when it runs
for call in (torch.flagos.synchronize, lambda: y.copy_(x), lambda: x.cpu(), torch.flagos.synchronize,
             lambda: torch.empty(1 << 26, device="flagos")):
    try:
        call()
    except RuntimeError as error:
        said = str(error)
        assert "ACL_ERROR_RT_AICORE_EXCEPTION (507015): E507015" in said, said
        assert "restart the process" in said, said
        assert native().lost(error) and not isinstance(error, torch.OutOfMemoryError)
    else:
        raise AssertionError("a lost device was used")
other = torch.zeros(4).to("flagos:1")
assert other.cpu().tolist() == [0, 0, 0, 0]
""",
        SIMULATED_ASCEND_FAULT="aclrtMemcpyAsync=2:507015",
    )


def test_a_process_ends_with_work_in_its_streams(on_ascend):
    on_ascend(
        COPIES
        + """
graph = capture()
for _ in range(20):
    graph.replay()
x.copy_(host, non_blocking=True)
""",
        SIMULATED_ASCEND_DELAY_US="2000",
    )


SPAWN = """
import torch.multiprocessing as mp
context = mp.get_context("spawn")
def in_another_process(function, *arguments):
    child = context.Process(target=function, args=arguments)
    child.start()
    child.join(timeout=200)
    assert child.exitcode == 0, child.exitcode
"""


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_another_process_writes_to_memory_of_ascend(on_ascend, strategy):
    on_ascend(
        SPAWN
        + f"mp.set_sharing_strategy({strategy!r})\n"
        + """
from torch_fl.runtime.sharing import _sent
x = torch.arange(12.0).to("flagos:1").reshape(3, 4)
assert x.is_shared() and x.share_memory_() is x
in_another_process(torch.Tensor.fill_, x.t()[1:], 7)
assert x.tolist() == [[0, 7, 7, 7], [4, 7, 7, 7], [8, 7, 7, 7]]
model = torch.nn.Linear(2, 2).to("flagos")
in_another_process(torch.nn.init.constant_, model.weight, 3)
assert model.weight.tolist() == [[3, 3], [3, 3]]
_sent.collect()
assert not _sent._held                          # the other processes have closed them
del x, model
torch.flagos.empty_cache()
"""
    )


def test_messages_of_ascend_that_come_back(on_ascend):
    on_ascend(
        SPAWN
        + """
from multiprocessing.reduction import ForkingPickler
from pickle import loads
x = torch.arange(4.0).to("flagos")
whole, part = loads(ForkingPickler.dumps((x, x[2:])))      # to the process that sent it
part.fill_(9)
assert whole.tolist() == x.tolist() == [0, 1, 9, 9]
assert whole.untyped_storage()._cdata == x.untyped_storage()._cdata
assert loads(ForkingPickler.dumps(torch.empty(0, 2, device="flagos"))).shape == (0, 2)
back = context.Queue()
child = context.Process(target=back.put, args=(x,))
child.start()
y = back.get(timeout=200)                                  # a copy: it was not the child's to pass on
child.join()
y.fill_(1)
assert x.tolist() == [0, 1, 9, 9] and y.tolist() == [1, 1, 1, 1]
"""
    )


@pytest.mark.slow
def test_a_runtime_that_shares_no_memory_is_named(on_ascend):
    on_ascend(
        SPAWN
        + """
x = torch.arange(4.0).to("flagos")
assert not x.is_shared()
try:
    x.share_memory_()
except NotImplementedError as error:
    said = str(error)
    assert "has no aclrtIpcMemGetExportKey, aclrtIpcMemImportByKey, aclrtIpcMemClose" in said, said
    assert "x.cpu().share_memory_()" in said, said
else:
    raise AssertionError("shared")
in_another_process(torch.Tensor.fill_, x, 7)               # a copy
assert x.tolist() == [0, 1, 2, 3]
""",
        SIMULATED_ASCEND_VERSION="8.1",
    )
