"""Graphs of work that the core's streams capture, on the example chip.

A host access to device memory ends the process, so a test that passes has made none.
"""

from __future__ import annotations

import pytest

from adapters.torch.tests.refusals import REFUSED

pytestmark = pytest.mark.needs("compiler")


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


@pytest.mark.slow
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
