"""torch.accelerator.Graph, which torch has since 2.12."""

from __future__ import annotations

import pytest
import torch

pytestmark = pytest.mark.skipif(
    not hasattr(torch.accelerator, "Graph"), reason="this torch has no torch.accelerator.Graph"
)


@pytest.mark.host
def test_it_is_refused_with_what_is_missing():
    with pytest.raises(NotImplementedError, match=r"host.*captur|captur.*host"):
        torch.accelerator.Graph()


@pytest.mark.needs("compiler")
def test_a_graph_replays_what_was_captured(on_chip):
    on_chip("""
x = torch.zeros(8, 8, device="flagos")
torch.relu(x + 1)
stream, recorded = torch.Stream("flagos"), torch.accelerator.Graph()
with stream, recorded:
    assert torch.flagos.is_current_stream_capturing()
    y = torch.relu(x + 1)
assert not torch.flagos.is_current_stream_capturing()
second = torch.accelerator.Graph(pool=recorded.pool(), capture_error_mode="thread_local")
with stream, second:
    z = y * 2
for value in (1.0, 2.0, -3.0):
    x.fill_(value)
    torch.accelerator.synchronize()
    with stream:
        recorded.replay()
        second.replay()
    stream.synchronize()
    assert torch.equal(y.cpu(), torch.full((8, 8), max(value + 1, 0))), value
    assert torch.equal(z.cpu(), y.cpu() * 2)
recorded.reset()
with stream, recorded:
    y = x + 2
recorded.replay()
torch.accelerator.synchronize()
assert torch.equal(y.cpu(), x.cpu() + 2)
""")


@pytest.mark.needs("compiler")
def test_wrong_calls_are_named(on_chip):
    on_chip("""
import pytest
with pytest.raises(NotImplementedError, match="without keep_graph"):
    torch.accelerator.Graph(keep_graph=True)
graph = torch.accelerator.Graph(pool=(7, 1))
with pytest.raises(ValueError, match="no pool"):
    graph.capture_begin()
graph = torch.accelerator.Graph()
with pytest.raises(NotImplementedError, match="cannot be dumped"):
    graph.debug_dump("graph")
with torch.Stream("flagos"):
    graph.capture_begin()
    with pytest.raises(Exception, match="captur"):
        torch.ones(2, device="flagos").cpu()
    graph.capture_end()
assert torch.ones(2, device="flagos").sum().item() == 2
""")


@pytest.mark.cuda
def test_a_graph_of_cuda(one_result):
    x = torch.zeros(64, 64, device="flagos")
    torch.relu(x @ x + 1)
    stream, recorded = torch.Stream("flagos"), torch.accelerator.Graph()
    torch.accelerator.synchronize()
    with stream, recorded:
        y = torch.relu(x @ x + 1)
    x.normal_()
    torch.accelerator.synchronize()
    recorded.replay()
    torch.accelerator.synchronize()
    assert torch.equal(y, torch.relu(x @ x + 1))
