"""Policies for a region: threads, tasks, nesting; and the policy of TransformerEngine-FL's tests."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import flagos
from adapters.te.tests.test_manager import impl, manager
from te_fl import core
from te_fl.core import (
    PolicyManager,
    SelectionPolicy,
    bump_policy_epoch,
    get_policy,
    get_policy_epoch,
    policy_context,
    policy_from_env,
    reset_global_policy,
    set_global_policy,
    with_allowed_vendors,
    with_denied_vendors,
    with_preference,
    with_strict_mode,
)


def test_regions_nest_and_end() -> None:
    m = manager(impl("f"), impl("v", "vendor"), impl("r", "reference"))
    op = m.bound("my_op")
    assert op() == "f"
    with with_preference("vendor"):
        assert (op(), get_policy().prefer) == ("v", "vendor")
        with with_denied_vendors("acme"):
            assert op() == "f"
            with with_preference("reference"):
                assert op() == "r" and get_policy().deny_vendors == {"acme"}
            assert op() == "f"
        assert op() == "v"
    assert op() == "f"


def test_a_region_ends_with_an_exception_and_can_be_entered_again() -> None:
    m = manager(impl("f"), impl("v", "vendor"))
    region = with_preference("vendor")
    for _ in range(2):
        with pytest.raises(KeyError, match="v"), region:
            raise KeyError(m.call("my_op"))
        assert m.call("my_op") == "f"
    with region, region:
        assert m.call("my_op") == "v"
    assert m.call("my_op") == "f"


@pytest.mark.parametrize(
    ("policy", "report"),
    [
        ({"deny_vendors": "nvidia"}, r"deny_vendors is a collection: write \['nvidia'\]"),
        ({"allow_vendors": "nvidia"}, r"allow_vendors is a collection"),
        ({"per_op_order": {"gelu": "vendor"}}, r"the order of gelu is a collection"),
        (
            {"deny_vendors": {"two words"}},
            r"'two words' in deny_vendors is not the name of a vendor",
        ),
        ({"per_op_order": {"gelu": ["vendro"]}}, r"`vendro` is not an alternative; did you mean"),
    ],
)
def test_a_policy_that_means_nothing_is_refused(policy: dict[str, Any], report: str) -> None:
    with pytest.raises((TypeError, ValueError), match=report):
        SelectionPolicy.from_dict(**policy)


@pytest.mark.parametrize(
    ("make", "report"),
    [
        (lambda: SelectionPolicy(strict="no"), "strict must be True or False, not 'no'"),  # type: ignore[arg-type]
        (lambda: SelectionPolicy(per_op_order={"gelu": ("vendor",)}), "from_dict takes a dict"),  # type: ignore[arg-type]
        (lambda: core.set_global_policy("vendor"), "a policy is a SelectionPolicy, not 'vendor'"),  # type: ignore[arg-type]
        (lambda: core.policy_context(None), "a policy is a SelectionPolicy"),  # type: ignore[arg-type]
        (lambda: core.with_denied_vendors(["nvidia"]), "each vendor is an argument of its own"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_policy_is_refused(make: Callable[[], Any], report: str) -> None:
    with pytest.raises(TypeError, match=report):
        make()


def test_a_region_belongs_to_its_thread() -> None:
    m = manager(impl("f"), impl("v", "vendor"), impl("r", "reference"))
    op, both = m.bound("my_op"), threading.Barrier(3)

    def inside(prefer: str) -> set[str]:
        with with_preference(prefer):
            both.wait(10)
            seen = {op() for _ in range(2000)}
            both.wait(10)
        return seen | {op()}

    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(inside, prefer) for prefer in ("vendor", "reference")]
        both.wait(10)
        assert {op() for _ in range(2000)} == {"f"}
        both.wait(10)
        assert [run.result() for run in runs] == [{"v", "f"}, {"r", "f"}]


def test_a_region_follows_its_task_and_the_threads_it_asks() -> None:
    m = manager(impl("f"), impl("v", "vendor"), impl("r", "reference"))
    op = m.bound("my_op")

    async def inside(prefer: str) -> list[str]:
        seen = []
        with with_preference(prefer):
            for _ in range(20):
                seen.append(op())
                await asyncio.sleep(0)
            seen.append(await asyncio.to_thread(op))
            seen.append(await asyncio.create_task(asyncio.to_thread(op)))
        return seen

    async def main() -> None:
        found = await asyncio.gather(*map(inside, ("vendor", "reference", "flagos")))
        assert [set(seen) for seen in found] == [{"v"}, {"r"}, {"f"}]
        assert op() == "f"

    asyncio.run(main())


def test_one_region_object_serves_several_tasks() -> None:
    m = manager(impl("f"), impl("v", "vendor"))
    region = with_preference("vendor")

    async def inside(turns: int) -> None:
        with region:
            for _ in range(turns):
                assert m.call("my_op") == "v"
                await asyncio.sleep(0)
        assert m.call("my_op") == "f"

    async def main() -> None:
        await asyncio.gather(*map(inside, (1, 5, 3)))

    asyncio.run(main())
    assert m.call("my_op") == "f"


def test_registration_and_global_policy_reach_into_a_region() -> None:
    m = manager(impl("f"), impl("v1", "vendor"))
    with with_preference("vendor"):
        assert m.call("my_op") == "v1"
        m.registry.register_impl(impl("v2", "vendor"))
        assert m.call("my_op") == "v2"
        set_global_policy(SelectionPolicy(prefer="reference"))
        assert m.call("my_op") == "v2"


def test_a_copied_context_takes_the_region_along() -> None:
    m = manager(impl("f"), impl("v", "vendor"))
    with with_preference("vendor"):
        m.call("my_op")
        copied = contextvars.copy_context()
    assert m.call("my_op") == "f"
    with with_strict_mode():  # some region is entered, so that contexts are looked at
        assert copied.run(m.call, "my_op") == "v"


def test_a_policy_replaces_the_variables_and_a_part_of_one_only_that_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    m = manager(impl("f"), impl("v", "vendor"), impl("r", "reference"))
    monkeypatch.setenv("TE_FL_PER_OP", "my_op=reference")
    reset_global_policy()
    assert m.call("my_op") == "r"
    with with_strict_mode():
        assert m.call("my_op") == "r" and get_policy().strict
    with policy_context(SelectionPolicy(prefer="vendor")):
        assert m.call("my_op") == "v"
    assert set_global_policy(SelectionPolicy(prefer="vendor")).per_op_order_dict == {
        "my_op": ["reference"]
    }
    assert m.call("my_op") == "v"
    reset_global_policy()
    assert m.call("my_op") == "r"


def test_policies_are_values() -> None:
    one = SelectionPolicy.from_dict(prefer="Vendor", strict=True, deny_vendors={"b", "a"})
    two = SelectionPolicy.from_dict(prefer="vendor", strict=True, deny_vendors=["a", "b"])
    assert one == two and hash(one) == hash(two) and one.fingerprint() == two.fingerprint()
    assert one.fingerprint() == "prefer=vendor;st=1;deny=a,b"
    assert not one.is_vendor_allowed("A") and one.is_vendor_allowed("c")
    assert SelectionPolicy.from_dict(allow_vendors={"NVIDIA"}).is_vendor_allowed("cuda")
    with pytest.raises(AttributeError):
        one.prefer = "flagos"  # type: ignore[misc]


@pytest.mark.parametrize(
    ("make", "report"),
    [
        (lambda: SelectionPolicy(prefer="vendro"), "Invalid prefer value: 'vendro'"),
        (
            lambda: SelectionPolicy.from_dict(per_op_order={"x": ["flagoss"]}),
            "did you mean `flagos`",
        ),
        (lambda: SelectionPolicy.from_dict(per_op_order={"x": ["vendor:"]}), "not an alternative"),
    ],
)
def test_a_policy_that_is_not_valid_is_refused(make, report: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=report):
        make()


def test_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "TE_FL_PREFER": "reference",
        "TE_FL_PREFER_VENDOR": "1",
        "TE_FL_STRICT": "1",
        "TE_FL_DENY_VENDORS": "rocm, DCU",
        "TE_FL_ALLOW_VENDORS": "cuda",
        "TE_FL_PER_OP": "gelu=vendor|flagos",
    }.items():
        monkeypatch.setenv(name, value)
    policy = policy_from_env()
    assert policy == SelectionPolicy.from_dict(
        "reference", True, {"gelu": ["vendor", "flagos"]}, {"rocm", "DCU"}, {"cuda"}
    )
    monkeypatch.delenv("TE_FL_PREFER")
    assert policy_from_env().prefer == "vendor"
    monkeypatch.setenv("TE_FL_PREFER", "vendro")
    with pytest.raises(flagos.ConfigError, match=r"TE_FL_PREFER; did you mean `vendor`"):
        policy_from_env()


@pytest.mark.parametrize(
    ("name", "value", "report"),
    [
        ("TE_FL_DENY_VENDORS", "nvidiaa", "unknown vendor `nvidiaa`"),
        ("TE_FL_PER_OP", "rmsnorm_fdw=flagos", "did you mean `te::rmsnorm_fwd`"),
        ("TE_FL_PER_OP", "gelu=vendor:nobody", "unknown vendor `nobody`"),
        ("TE_FL_PER_OP", "gelu=impl:default.flagos", "did you mean `default.flagos_rs`"),
    ],
)
def test_names_that_nothing_has_are_errors_that_name_the_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, report: str
) -> None:
    monkeypatch.setenv(name, value)
    reset_global_policy()
    with pytest.raises(flagos.ConfigError, match=report) as caught:
        manager(impl("f")).call("my_op")
    assert name in str(caught.value)
    # And gone with the mistake.
    monkeypatch.delenv(name)
    reset_global_policy()
    assert manager(impl("f")).call("my_op") == "f"


def test_epochs_count() -> None:
    before = get_policy_epoch()
    assert bump_policy_epoch() == before + 1 == get_policy_epoch()
    assert PolicyManager.get_instance() is PolicyManager.get_instance()


def test_allowing_vendors_in_a_region() -> None:
    m = manager(impl("a", "vendor", vendor="acme"), impl("n", "vendor", vendor="CUDA", priority=1))
    with with_allowed_vendors("acme"):
        assert m.call("my_op") == "a" and get_policy().allow_vendors == {"acme"}
    assert m.call("my_op") == "n" and get_policy().allow_vendors is None
