"""Graphs of vendors whose streams the core captures: on the example chip, and on Ascend's simulated runtime.

A script is a process of its own. On the example chip a host access to device memory ends the process; Ascend's
simulated runtime reports what a chip would not take, and here has no kernels, so that it shows copies, and what is
refused.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.simulated_ascend.library import library

pytestmark = pytest.mark.needs("compiler")

ASKS = ("(refused: 107002)", "(refused: 107003)", "(refused: 107007)")
"""How the vendor asks the runtime, and is refused: whether a thread has a context, and the order of two events."""


@pytest.fixture(scope="session")
def acl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the simulated runtime."""
    folder = tmp_path_factory.mktemp("acl")
    shutil.copy(library(), folder / "libascendcl.so")
    return folder


@pytest.fixture
def on_ascend(acl, run_python, tmp_path):
    """Runs a script on Ascend's simulated runtime; fails for what that found wrong."""

    def run(script, **variables):
        report = tmp_path / "report"
        environment = {
            "FLAGOS_VENDOR": "ascend",
            "LD_LIBRARY_PATH": os.pathsep.join(
                [str(acl), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
            ),
            # Where there is no device file, the vendor takes a library that is loaded already.
            "LD_PRELOAD": str(acl / "libascendcl.so"),
            "SIMULATED_ASCEND_REPORT": str(report),
            "ASCEND_RT_VISIBLE_DEVICES": None,
        }
        done = run_python("import torch\n" + script, fresh=True, **{**environment, **variables})
        lines = report.read_text().splitlines() if report.exists() else []
        assert [line for line in lines if not line.endswith(ASKS)] == []
        return done

    return run


def test_a_graph_replays_what_was_captured(on_chip):
    on_chip("""
x, w = torch.zeros(8, 8, device="flagos"), torch.randn(8, 8).to("flagos")
def work():
    return torch.softmax(torch.relu(x + 1) @ w, -1)
work()
recorded = torch.flagos.Graph()
with torch.flagos.graph(recorded):
    assert torch.flagos.is_current_stream_capturing()
    y = work()
assert not torch.flagos.is_current_stream_capturing()
for value in (1.0, 2.0, 3.0):
    x.fill_(value)
    recorded.replay()
    assert torch.equal(y.cpu(), work().cpu()), value
other = torch.flagos.Stream()
x.fill_(4)
torch.flagos.synchronize()
with torch.flagos.stream(other):
    recorded.replay()
other.synchronize()
assert torch.equal(y.cpu(), work().cpu())
""")


def test_memory_of_a_graph_is_its_own(on_chip):
    on_chip("""
import gc
def reserved():
    torch.flagos.empty_cache()
    return torch.flagos.memory_reserved()
x = torch.ones(1 << 20, device="flagos")
before = reserved()
recorded = torch.flagos.Graph()
with torch.flagos.graph(recorded):
    y = torch.neg(torch.neg(x) + x)        # two tensors that nobody keeps
    y = y + x
held = reserved()
assert held > before
address = y.data_ptr()
assert torch.flagos.memory_allocated() < held
x.fill_(5)
filler = [torch.full((1 << 20,), 7.0, device="flagos") for _ in range(8)]
assert address not in [each.data_ptr() for each in filler]
recorded.replay()
assert (y.cpu() == 5).all() and all((each.cpu() == 7).all() for each in filler)
del filler
pool = recorded.pool()
assert isinstance(pool, tuple) and pool[0] == 0 and pool[1] > 0
second = torch.flagos.Graph()
with torch.flagos.graph(second, pool=pool):
    z = torch.neg(x)
assert second.pool() == pool
recorded.reset()
del y
assert reserved() > before                 # the other graph uses the pool
second.replay()
assert (z.cpu() == -5).all()
del second, z
gc.collect()
assert reserved() == before
try:
    recorded.replay()
except ValueError as error:
    assert "has not been captured" in str(error), error
else:
    raise AssertionError("an empty graph ran")
with torch.flagos.graph(recorded, pool=torch.flagos.graph_pool_handle()):
    y = torch.neg(x)
recorded.replay()
assert (y.cpu() == -5).all()
""")


def test_several_streams_are_captured(on_chip):
    on_chip("""
side, x = torch.flagos.Stream(), torch.ones(64, device="flagos")
recorded = torch.flagos.Graph()
with torch.flagos.graph(recorded):
    y = x + x
    side.wait_stream(torch.flagos.current_stream())
    with torch.flagos.stream(side):
        z = y * y
        assert torch.flagos.is_current_stream_capturing()
    y.record_stream(side)
    torch.flagos.current_stream().wait_stream(side)
    out = z + x
x.fill_(3)
recorded.replay()
assert (out.cpu() == 39).all()
try:
    with torch.flagos.graph(torch.flagos.Graph()):
        side.wait_stream(torch.flagos.current_stream())
        with torch.flagos.stream(side):
            torch.neg(x)
except RuntimeError as error:
    assert "have not come back" in str(error), error
else:
    raise AssertionError("a stream is still away")
assert not torch.flagos.is_current_stream_capturing()
torch.flagos.synchronize()
with torch.flagos.stream(side):
    assert (torch.neg(x).cpu() == -3).all()
""")


def test_callables_are_graphed(on_chip):
    on_chip("""
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(8, 8, bias=False) for _ in range(2))
    def forward(self, x):
        return self.second(self.first(x)) * 2
net, plain = Net().to("flagos"), Net().to("flagos")
plain.load_state_dict(net.state_dict())
x = torch.randn(4, 8).to("flagos").requires_grad_()
graphed = torch.flagos.make_graphed_callables(net, (x,))
assert graphed is net
for _ in range(3):
    data = torch.randn(4, 8)
    ours, theirs = data.to("flagos").requires_grad_(), data.to("flagos").requires_grad_()
    got, wanted = graphed(ours), plain(theirs)
    close(got, wanted.detach().cpu())
    weight = torch.randn(4, 8).to("flagos")
    (got * weight).sum().backward()
    (wanted * weight).sum().backward()
    close(ours.grad, theirs.grad.cpu())
    for one, other in zip(net.parameters(), plain.parameters()):
        close(one.grad, other.grad.cpu())
        one.grad = other.grad = None
net.eval()
close(graphed(x), plain(x).detach().cpu())       # another mode is not what was captured
double, negated = torch.flagos.make_graphed_callables((lambda t: t + t, torch.neg), ((x,), (x,)))
y = torch.randn(4, 8).to("flagos")
close(double(y), 2 * y.cpu())
close(negated(y), -y.cpu())
""")


REFUSED = """
def refused(what, call):
    graph = torch.flagos.Graph()
    try:
        with torch.flagos.graph(graph):
            call()
    except NotImplementedError as error:
        said = str(error)
        assert all(word in said for word in what.split("|")), said
    else:
        raise AssertionError(f"done: {what}")
    assert not torch.flagos.is_current_stream_capturing()
    torch.flagos.synchronize()
    try:
        graph.replay()
    except ValueError as error:
        assert "has not been captured" in str(error)
    else:
        raise AssertionError("the graph is not empty")
"""


def test_what_a_capture_forbids_is_named(on_chip):
    on_chip(
        REFUSED
        + """
x, host = torch.ones(64, device="flagos"), torch.ones(64)
event = torch.flagos.Event()
def record_and_wait():
    event.record()
    event.synchronize()
refused("aten::cos would be served by the CPU|no kernel|vendor: example", lambda: x.cos())
refused("aten::uniform_ draws random numbers|every run", lambda: torch.rand(4, device="flagos"))
refused("not pinned|aten::_local_scalar_dense failed while a graph was being captured", lambda: x[0].item())
refused("not pinned|aten::copy_ failed", lambda: x.cpu())
refused("not pinned|aten::copy_ failed", lambda: host.to("flagos"))
refused("waiting for a captured stream", lambda: torch.flagos.current_stream().synchronize())
refused("waiting for the device", torch.flagos.synchronize)
refused("an event that was recorded in one", record_and_wait)
refused("a graph is being captured", torch.flagos.empty_cache)
assert fallbacks().get("aten::cos", 0) == 0
assert torch.equal(x.cos().cpu(), host.cos()) and fallbacks()["aten::cos"] == 1
# What the program catches itself does not end the capture.
graph = torch.flagos.Graph()
with torch.flagos.graph(graph):
    try:
        x.cos()
    except NotImplementedError:
        y = x + x
graph.replay()
assert (y.cpu() == 2).all()
"""
    )


def test_wrong_calls_are_named(on_chip):
    on_chip("""
def wrong(what, kind, call):
    try:
        call()
    except kind as error:
        assert what in str(error), error
    else:
        raise AssertionError(what)
graph = torch.flagos.Graph()
wrong("the default stream cannot be captured", ValueError, graph.capture_begin)
wrong("is not being captured", ValueError, graph.capture_end)
wrong("has not been captured", ValueError, graph.pool)
wrong("expected one of 'global'", ValueError, lambda: graph.capture_begin(capture_error_mode="none"))
wrong("is no pool", ValueError, lambda: graph.capture_begin(pool=7))
wrong("keep_graph", NotImplementedError, lambda: torch.flagos.Graph(keep_graph=True))
wrong("would repeat them", NotImplementedError,
      lambda: graph.register_generator_state(torch.Generator("flagos")))
with torch.flagos.stream(torch.flagos.Stream()):
    graph.capture_begin(capture_error_mode="relaxed")
    wrong("is being captured already", ValueError, graph.capture_begin)
    graph.capture_end()
wrong("has been captured", ValueError, graph.capture_begin)
assert not torch.flagos.is_current_stream_capturing()
""")


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
