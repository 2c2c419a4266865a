"""Fixtures of the tests over the simulated libraries of Ascend: `make test-ascend`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from core.vendors.ascend.tests import simulator


@pytest.fixture(autouse=True)
def _no_misuse(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every test on the vendor uses CANN as its documents allow."""
    if request.node.get_closest_marker("ascend") is None or not simulator.is_loaded():
        yield
        return
    before = len(simulator.misuses())
    yield
    assert simulator.misuses()[before:] == []


@pytest.fixture
def fallbacks() -> object:
    """A call gives the operators that have fallen back to the CPU since the test began."""
    from torch_fl.aten.routing import counters

    def counted() -> dict[str, int]:
        return {op: numbers["fallbacks"] for op, numbers in counters().items()}

    before = counted()

    def since() -> dict[str, int]:
        now = counted()
        return {
            op: count - before.get(op, 0) for op, count in now.items() if count > before.get(op, 0)
        }

    return since
