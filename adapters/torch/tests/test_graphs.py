"""Graph capture, which the host vendor does not have."""

from __future__ import annotations

import inspect
from importlib import import_module

import pytest
import torch

import flagos


@pytest.mark.host
@pytest.mark.parametrize(
    "use",
    [
        torch.flagos.Graph,
        lambda: torch.flagos.graph(cuda_graph=None),
        torch.flagos.graph_pool_handle,
        lambda: torch.flagos.make_graphed_callables(abs, ()),
    ],
)
def test_capture_is_refused_with_what_is_missing(use):
    with pytest.raises(flagos.UnsupportedError, match=r"stream capture.*'host'") as caught:
        use()
    assert isinstance(caught.value, NotImplementedError)


def test_nothing_is_being_captured():
    assert torch.flagos.is_current_stream_capturing() is False


@pytest.mark.parametrize("module", ["torch_fl.cuda.graphs", "torch_fl.flagos._core_graphs"])
def test_the_arguments_of_a_capture_are_those_of_torch(module):
    theirs = [*inspect.signature(torch.cuda.graph).parameters][:4]
    assert [*inspect.signature(import_module(module).graph).parameters] == theirs
