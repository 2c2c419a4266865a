"""Registration, selection and calls."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import flagos
from te_fl.core import (
    BackendImplKind,
    OpImpl,
    OpManager,
    OpRegistry,
    SelectionPolicy,
    TEFLModule,
    UnsupportedError,
    get_default_manager,
    get_tefl_module,
    policy_context,
    reset_registry,
    set_global_policy,
)

KINDS = {
    "flagos": BackendImplKind.DEFAULT,
    "vendor": BackendImplKind.VENDOR,
    "reference": BackendImplKind.REFERENCE,
}


def impl(
    impl_id: str,
    kind: str = "flagos",
    fn: Callable[..., Any] | None = None,
    op: str = "my_op",
    **more: Any,
) -> OpImpl:
    if kind == "vendor":
        more.setdefault("vendor", "acme")
    return OpImpl(op, impl_id, KINDS[kind], fn or (lambda *a, **k: impl_id), **more)


def manager(*impls: OpImpl) -> OpManager:
    registry = OpRegistry()
    registry.register_many(impls)
    return OpManager(registry)


def test_an_implementation_of_a_vendor_names_it() -> None:
    with pytest.raises(ValueError, match=r"must specify vendor name: vendor\.x"):
        OpImpl("my_op", "vendor.x", BackendImplKind.VENDOR, print)


def test_an_implementation_has_a_function() -> None:
    with pytest.raises(TypeError, match="fn of 'none' for op='my_op' is not callable: None"):
        manager(OpImpl("my_op", "none", BackendImplKind.DEFAULT, None))  # type: ignore[arg-type]


def test_a_registry_lists_what_it_has() -> None:
    registry = OpRegistry()
    first, second = impl("a"), impl("b", "reference", op="other")
    registry.register_many([first, second])
    assert registry.list_operators() == ["my_op", "other"]
    assert registry.get_implementations("my_op") == [first]
    assert registry.get_implementation("other", "b") is second
    assert registry.get_implementation("other", "a") is None
    assert registry.snapshot().impls_by_op == {"my_op": [first], "other": [second]}
    with pytest.raises(ValueError, match="Duplicate impl_id 'a' for op='my_op'"):
        registry.register_impl(impl("a"))
    registry.clear()
    assert registry.list_operators() == [] and registry.get_implementations("my_op") == []
    registry.register_impl(impl("a"))


def test_of_many_all_are_registered_or_none() -> None:
    registry = OpRegistry()
    with pytest.raises(ValueError, match="Duplicate"):
        registry.register_many([impl("a"), impl("b"), impl("a")])
    assert registry.list_operators() == []


@pytest.mark.parametrize(
    ("prefer", "order"),
    [
        ("flagos", ["f", "v2", "v1", "r"]),
        ("vendor", ["v2", "v1", "f", "r"]),
        ("reference", ["r", "f", "v2", "v1"]),
    ],
)
def test_order_then_priority_then_id_descending(prefer: str, order: list[str]) -> None:
    m = manager(impl("r", "reference"), impl("v1", "vendor"), impl("f"), impl("v2", "vendor"))
    with policy_context(SelectionPolicy(prefer=prefer)):
        assert [i.impl_id for i in m.resolve_candidates("my_op")] == order
        assert m.get_selected_impl_id("my_op") == order[0] == m.call("my_op")
        assert m.resolve("my_op") is m.resolve_candidates("my_op")[0].fn
    first = manager(impl("v1", "vendor", priority=5), impl("v2", "vendor"))
    assert first.get_selected_impl_id("my_op") == "v1"


@pytest.mark.parametrize(
    ("policy", "chosen"),
    [
        ({"per_op_order": {"my_op": ["reference"]}}, "r"),
        ({"per_op_order": {"my_op": ["vendor:ACME", "flagos"]}}, "v"),
        ({"per_op_order": {"my_op": ["impl:r", "flagos"]}}, "r"),
        ({"per_op_order": {"other": ["reference"]}}, "f"),
        ({"prefer": "vendor", "deny_vendors": {"Acme"}}, "n"),
        ({"prefer": "vendor", "allow_vendors": {"nvidia"}}, "n"),
        ({"prefer": "vendor", "allow_vendors": {"acme", "cuda"}, "deny_vendors": {"acme"}}, "n"),
        ({"prefer": "vendor", "allow_vendors": {"someone_else"}}, "f"),
    ],
)
def test_policies(policy: dict[str, Any], chosen: str) -> None:
    m = manager(
        impl("f"),
        impl("r", "reference"),
        impl("v", "vendor", priority=1),
        impl("n", "vendor", vendor="CUDA"),
    )
    with policy_context(SelectionPolicy.from_dict(**policy)):
        assert m.call("my_op") == chosen


def test_a_probe_that_says_no_or_raises_means_no_and_is_asked_again_after_a_bump() -> None:
    here = [False]

    def chosen() -> str:
        return "chosen"

    chosen._is_available = lambda: here[0] or 1 / 0  # type: ignore[attr-defined]
    m = manager(impl("chosen", fn=chosen), impl("r", "reference"))
    assert m.call("my_op") == "r"
    here[0] = True
    assert m.call("my_op") == "r"
    m.bump_policy_epoch()
    assert m.call("my_op") == "chosen"


def test_what_nothing_serves_says_why() -> None:
    m = manager(impl("v", "vendor"))
    with policy_context(SelectionPolicy.from_dict(deny_vendors={"acme"})):
        with pytest.raises(
            RuntimeError, match=r"No available implementation for op='my_op'.*denied"
        ):
            m.call("my_op")
    with pytest.raises(RuntimeError, match="did you mean 'my_op'"):
        m.call("my_opp")
    with pytest.raises(
        UnsupportedError, match="nothing registered one; TransformerEngine's native"
    ):
        m.call("nvshmem_finalize")


def test_arguments_arrive_as_they_were_given() -> None:
    m = manager(impl("echo", fn=lambda *a, **k: (a, k)))
    assert m.call("my_op") == ((), {})
    assert m.call("my_op", 1, None, x=2) == ((1, None), {"x": 2})
    assert m.call("my_op", *range(20)) == (tuple(range(20)), {})
    assert m.call("my_op", **{f"k{i}": i for i in range(9)}) == ((), {f"k{i}": i for i in range(9)})
    assert m.call(op_name="my_op", x=1) == ((), {"x": 1})
    assert m.bound("my_op")(3, y=4) == ((3,), {"y": 4})
    with pytest.raises(TypeError, match="op_name"):
        m.call()
    with pytest.raises(TypeError, match="must be a str, not int"):
        m.call(3)
    with pytest.raises(TypeError):
        m.call([])


def test_registration_after_the_first_call_is_seen_by_the_next() -> None:
    m = manager(impl("r", "reference"))
    op = m.bound("my_op")
    assert op() == "r"
    m.registry.register_impl(impl("f"))
    assert op() == m.call("my_op") == "f"
    m.registry.register_impl(impl("better", priority=9))
    assert op() == "better"
    m.registry.unregister("my_op", "better")
    assert op() == "f"
    set_global_policy(SelectionPolicy(prefer="reference"))
    assert op() == "r"


def test_registries_are_apart() -> None:
    first, second = manager(impl("a")), manager(impl("b"))
    assert (first.call("my_op"), second.call("my_op")) == ("a", "b")
    assert "my_op" not in get_default_manager().registry.list_operators()


def test_objects_are_released() -> None:
    class Callable_:
        def __call__(self) -> str:
            return "called"

    fn = Callable_()
    m = manager(impl("f", fn=fn))
    assert m.call("my_op") == "called"
    gone = [weakref.ref(m), weakref.ref(m.registry)]
    references = sys.getrefcount(fn)
    for _ in range(1000):
        m.call("my_op")
    assert sys.getrefcount(fn) == references
    del m
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_results_and_errors_leak_no_references() -> None:
    sentinel, argument = object(), object()

    def sometimes(x: object, fail: bool = False) -> object:
        if fail:
            raise KeyError("no")
        return sentinel

    m = manager(impl("f", fn=sometimes))
    m.call("my_op", argument)
    before = sys.getrefcount(sentinel), sys.getrefcount(argument)
    for _ in range(100):
        m.call("my_op", argument)
        with pytest.raises(KeyError):
            m.call("my_op", argument, fail=True)
        with pytest.raises(TypeError):
            m.call("my_op", argument, 1, 2, 3)
    gc.collect()
    assert (sys.getrefcount(sentinel), sys.getrefcount(argument)) == before


def test_an_implementation_may_replace_itself_and_call_back() -> None:
    m = manager(impl("r", "reference"))

    def once() -> str:
        m.registry.unregister("my_op", "once")
        gc.collect()
        return "once, then " + m.call("my_op")

    m.registry.register_impl(impl("once", fn=once))
    del once
    assert m.call("my_op") == "once, then r"


def test_threads_call_while_another_registers() -> None:
    m = manager(impl("r", "reference"))
    op = m.bound("my_op")
    stop, wrong = threading.Event(), []

    def caller() -> None:
        while not stop.is_set():
            if op() not in ("r", "f"):
                wrong.append(op())

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for thread in callers:
        thread.start()
    for _ in range(200):
        m.registry.register_impl(impl("f"))
        assert op() == "f"
        m.registry.unregister("my_op", "f")
        assert op() == "r"
    stop.set()
    for thread in callers:
        thread.join()
    assert wrong == []


def test_what_is_unregistered_while_it_is_ranked_is_not_called() -> None:
    m = manager(impl("r", "reference"), impl("f"))
    store = m.registry._store

    class Racing:
        """The store, with another thread's work after the first answer."""

        asked = 0

        def rank(self, *arguments: Any) -> Any:
            found = store.rank(*arguments)
            self.asked += 1
            if self.asked == 1:
                m.registry.unregister("my_op", "f")
            return found

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

    racing = Racing()
    m.registry._store = racing  # type: ignore[assignment]
    assert m.bound("my_op")() == "r"
    assert racing.asked >= 2


def test_the_module_has_operators_as_attributes_and_enumerations() -> None:
    m = manager(impl("f"))
    tex = TEFLModule(m)
    assert tex.my_op() == "f" and tex.my_op is m.bound("my_op")
    assert "my_op" in dir(tex) and tex.DType.kBFloat16 == 6
    m.registry.register_impl(impl("late", op="late_op"))
    assert tex.late_op() == "late" and "late_op" in tex.__dict__
    with pytest.raises(AttributeError, match="did you mean 'late_op'"):
        _ = tex.late_opp
    assert not hasattr(tex, "__wrapped__")


def test_the_default_manager_is_in_the_plan_of_flagos() -> None:
    reset_registry()
    tex, m = get_tefl_module(), get_default_manager()
    assert flagos.explain("te::rmsnorm_fwd").data["winner"] == "default.flagos_rs"
    m.registry.register_impl(impl("vendor.acme", "vendor", op="gelu"))
    with flagos.route({"te::gelu": "vendor:acme"}):
        assert tex.gelu(None) == "vendor.acme"
        assert flagos.explain("te::gelu").data["decided_by"] == "the active routing context"
    assert m.get_selected_impl_id("gelu") == "default.flagos_rs"
    flagos.set_route("te::gelu", "impl:vendor.acme")
    assert tex.gelu(None) == "vendor.acme"
    flagos.clear_route("te::gelu")
    flagos.register("te::gelu", lambda *a: "mine", impl_id="user.mine", priority=1000)
    assert tex.gelu(None) == "mine"
    flagos.unregister("te::gelu", "user.mine")
    set_global_policy(SelectionPolicy(prefer="vendor"))
    assert tex.gelu(None) == "vendor.acme"
    assert flagos.explain("te::gelu").data["decided_by"] == "the call te_fl.core.set_global_policy"
    reset_registry()
    assert get_default_manager() is not m and get_tefl_module() is not tex
    # The old manager goes on by itself, with what it had.
    assert m.call("gelu", None) == "vendor.acme"
    assert "vendor.acme" not in [
        i.impl_id for i in get_default_manager().registry.get_implementations("gelu")
    ]


def test_a_misspelt_route_is_an_error_with_the_nearest_operator() -> None:
    get_default_manager().ensure_initialized()
    with pytest.raises(flagos.ConfigError, match=r"te::rmsnorm_fwd"):
        flagos.set_route("te::rmsnorm_fdw", "reference")
