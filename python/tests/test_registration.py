"""Implementations: bulk and single, native and Python, available or not."""

from __future__ import annotations

import gc
import weakref

import pytest

import flagos
from flagos import _core


def test_bulk_registration(namespace: str) -> None:
    assert _core.register_impls(namespace, ["a", "b.x"], "cpu.native", "vendor", "host", "cpu") == 2
    assert flagos.operators(f"{namespace}::") == [f"{namespace}::a", f"{namespace}::b.x"]
    assert flagos.explain(f"{namespace}::b.x").data["winner"] == "cpu.native"


def test_bulk_registration_is_all_or_nothing(namespace: str) -> None:
    _core.register_impl(f"{namespace}::b", "one", "flagos")
    with pytest.raises(flagos.InvalidArgumentError, match="already has an implementation"):
        _core.register_impls(namespace, ["a", "b"], "one", "flagos")
    assert flagos.operators(f"{namespace}::") == [f"{namespace}::b"]


def test_an_unavailable_implementation_loses_with_its_reason(namespace: str) -> None:
    op = f"{namespace}::a"
    _core.register_impl(op, "fast", "flagos", priority=9, unavailable_reason="needs a chip")
    _core.register_impl(op, "slow", "reference")
    data = flagos.explain(op).data
    assert data["winner"] == "slow"
    assert "needs a chip" in next(c["reason"] for c in data["candidates"] if c["impl_id"] == "fast")


def test_a_python_function_is_found_by_its_token(namespace: str) -> None:
    def fn(x: int) -> int:
        return x + 1

    token = flagos.register(f"{namespace}::a", fn, impl_id="user.fn")
    assert token > 0
    assert flagos.foreign(token) is fn
    assert flagos.explain(f"{namespace}::a").data["route"] == "foreign"


def test_unregistering_releases_the_function(namespace: str) -> None:
    class Fn:
        def __call__(self) -> None: ...

    fn = Fn()
    token = flagos.register(f"{namespace}::a", fn, impl_id="user.fn")
    alive = weakref.ref(fn)
    del fn
    gc.collect()
    assert alive() is not None
    flagos.unregister(f"{namespace}::a", "user.fn")
    gc.collect()
    assert alive() is None
    with pytest.raises(LookupError, match="unregistered"):
        flagos.foreign(token)


def test_a_refused_registration_keeps_nothing(namespace: str) -> None:
    class Fn:
        def __call__(self) -> None: ...

    flagos.register(f"{namespace}::a", len, impl_id="user.fn")
    fn = Fn()
    alive = weakref.ref(fn)
    with pytest.raises(flagos.InvalidArgumentError):
        flagos.register(f"{namespace}::a", fn, impl_id="user.fn")
    del fn
    gc.collect()
    assert alive() is None


def test_the_decorator_names_the_implementation_after_the_function(namespace: str) -> None:
    @flagos.implementation(f"{namespace}::a", priority=3)
    def double(x: int) -> int:
        return 2 * x

    assert double(2) == 4
    candidate = flagos.explain(f"{namespace}::a").data["candidates"][0]
    assert (candidate["impl_id"], candidate["priority"]) == ("user.double", 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("mm", "x", "nonsense"), "use `flagos`, `vendor` or `reference`"),
        (("mm", "x", "vendor"), "names no vendor"),
        (("a::b::c", "x", "flagos"), "not the name of an operator"),
        (("mm", "an id", "flagos"), "not a valid implementation id"),
    ],
)
def test_wrong_arguments(arguments: tuple[str, str, str], message: str) -> None:
    with pytest.raises(flagos.InvalidArgumentError, match=message):
        _core.register_impl(*arguments)


def test_only_callables_are_implementations() -> None:
    with pytest.raises(TypeError, match="callable"):
        _core.register_impl("mm", "x", "flagos", 3)  # type: ignore[arg-type]
