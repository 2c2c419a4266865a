"""What the wheel of a vendor contributes for its back end of Triton."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pytest

from flagos import adapters
from torch_fl.native import triton


@pytest.fixture(autouse=True)
def _looked_up_anew() -> Iterator[None]:
    triton.back_end.cache_clear()
    yield
    triton.back_end.cache_clear()


def contributed(monkeypatch: pytest.MonkeyPatch, **back_ends: Callable[[], object]) -> None:
    """Has these entry points be all that there are of the group."""

    def contributions(group: str) -> list[SimpleNamespace]:
        assert group == "torch_fl.triton"
        return [
            SimpleNamespace(name=name, load=lambda kind=kind: kind)
            for name, kind in back_ends.items()
        ]

    monkeypatch.setattr(adapters, "contributions", contributions)


def test_a_back_end_is_the_one_that_a_wheel_contributes(monkeypatch: pytest.MonkeyPatch) -> None:
    class Ours:
        pass

    contributed(monkeypatch, other=object, ascend=Ours)
    assert isinstance(triton.back_end("ascend"), Ours)
    assert triton.back_end("nvidia") is None
    assert triton.back_end(None) is None


def test_without_the_wheel_importing_triton_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    contributed(monkeypatch)
    missing = triton.back_end("ascend")
    assert missing is not None
    missing.install()
    assert missing.completions == {"triton.runtime.driver": triton.__name__}
    monkeypatch.setattr(triton, "description", lambda: {"triton_backend": "ascend"})
    with pytest.raises(ImportError, match="pip install flagos-ascend"):
        triton.register()
