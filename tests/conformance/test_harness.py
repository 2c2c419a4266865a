"""The harness's own tests: above all, that it sees every kind of difference it claims to compare."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.conformance import pool
from tests.conformance.__main__ import main
from tests.conformance.databases import (
    DATABASES,
    ON_REQUEST,
    Case,
    all_cases,
    calls_of,
    variants_of,
)
from tests.conformance.expectations import Expectations
from tests.conformance.observation import EXACT, Tolerance, compare, observe
from tests.conformance.report import markdown, terminal
from tests.conformance.twin_run import Call, TwinRun
from tests.conformance.verdicts import summarize
from tests.conformance.worker import Checks, check_case
from torch_fl_tools.comparing.transfer import Transfer

Function = Callable[..., Any]


def kinds_seen(
    honest: Function,
    deviating: Function,
    *inputs: Any,
    tolerance: Tolerance = EXACT,
    close: bool = False,
) -> set[str]:
    """The kinds of mismatches reported for a device that computes ``deviating``."""
    runs = 0

    def body(transfer: Transfer, given: Any) -> Any:
        nonlocal runs
        runs += 1
        return (deviating if runs == 2 else honest)(*given)  # the reference runs first

    verdict = TwinRun("cpu", close=close).check(Call(body, inputs), tolerance)
    return {mismatch.kind for mismatch in verdict.mismatches}


def matrix() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4)


def fail(kind: type[Exception]) -> Function:
    def function(x: torch.Tensor) -> torch.Tensor:
        raise kind("no")

    return function


DEVIATIONS: dict[str, tuple[str, Function, Function]] = {
    "one unit in the last place": (
        "value",
        lambda x: x + 1,
        lambda x: torch.nextafter(x + 1, torch.tensor(math.inf)),
    ),
    "the sign of zero": ("value", lambda x: x * 0.0, lambda x: x * -0.0),
    "NaN for a number": ("value", lambda x: x + 1, lambda x: x + math.nan),
    "a Python number": ("value", lambda x: x.sum().item(), lambda x: x.sum().item() + 1),
    "dtype": ("dtype", lambda x: x + 1, lambda x: (x + 1).double()),
    "shape": ("shape", lambda x: x.sum(0), lambda x: x.sum(0, keepdim=True)),
    "strides": ("stride", lambda x: x + 1, lambda x: (x + 1).t().contiguous().t()),
    "storage offset": ("offset", lambda x: x[1:], lambda x: x[:2].add_(4)),
    "device": ("device", lambda x: x + 1, lambda x: torch.empty_like(x, device="meta")),
    "layout": ("layout", lambda x: x + 1, lambda x: (x + 1).to_sparse()),
    "a bigger storage": ("storage size", lambda x: x + 0, lambda x: torch.cat([x, x])[:3]),
    "a copy for a view": ("alias", lambda x: x.view(-1), lambda x: x.view(-1).clone()),
    "a view for a copy": ("alias", lambda x: x.flatten().clone(), lambda x: x.view(-1)),
    "a new object for the input": ("alias", lambda x: x.add_(1), lambda x: x.add_(1)[:]),
    "a view that forgot its base": ("view", lambda x: x.view(-1), lambda x: x.data.view(-1)),
    "a version counter of its own": (
        "version counter",
        lambda x: x.view(-1),
        lambda x: x.data.view(-1),
    ),
    "an unseen write": ("version", lambda x: x.add_(1), lambda x: (x.data.add_(1), x)[1]),
    "a write too many": ("version", lambda x: x + 1, lambda x: x.mul_(1) + 1),
    "an input overwritten": ("value", lambda x: x + 1, lambda x: x.add_(1).clone()),
    "the conjugate bit": (
        "flags",
        lambda x: torch.complex(x, x).conj(),
        lambda x: torch.complex(x, x).conj().resolve_conj(),
    ),
    "requires_grad": ("grad", lambda x: (x + 1).requires_grad_(), lambda x: x + 1),
    "a list for a tuple": ("structure", lambda x: (x + 1,), lambda x: [x + 1]),
    "no exception": ("error", fail(ValueError), lambda x: x + 1),
    "an exception": ("error", lambda x: x + 1, fail(ValueError)),
    "another exception": ("error", fail(ValueError), fail(NotImplementedError)),
    "other random numbers": (
        "value",
        lambda x: torch.rand(4),
        lambda x: torch.rand(5)[1:].clone(),
    ),
    "random numbers wasted": (
        "random state",
        lambda x: torch.rand(4),
        lambda x: (torch.rand(4), torch.rand(4))[0],
    ),
    "uncoalesced": (
        "coalesced",
        lambda x: x.to_sparse(),
        lambda x: x.to_sparse()._coalesced_(False),
    ),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_is_seen(name: str) -> None:
    kind, honest, deviating = DEVIATIONS[name]
    assert kind in kinds_seen(honest, deviating, matrix())


@pytest.mark.parametrize("name", DEVIATIONS)
def test_agreement_is_seen(name: str) -> None:
    _, honest, deviating = DEVIATIONS[name]
    assert kinds_seen(honest, honest, matrix()) == set()
    if name != "device":  # uninitialised
        assert kinds_seen(deviating, deviating, matrix()) <= {"device"}


def test_a_wrong_gradient_is_seen() -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return 2 * gradient

    twins = TwinRun("cpu")
    case = Case("op", "sin", "float32")
    _, call = next(iter(calls_of(case, "backward")))
    assert not twins.check(call).mismatches

    from tests.conformance.op_checks import gradients

    runs = 0

    def body(transfer: Transfer, inputs: Any) -> Any:
        nonlocal runs
        runs += 1
        (x,) = inputs
        output = Doubled.apply(x) if runs == 2 else x.sin()
        return {"grads": gradients(transfer, output, [x])}

    verdict = twins.check(Call(body, (torch.randn(3, requires_grad=True),)))
    assert "value" in {mismatch.kind for mismatch in verdict.mismatches}


def test_nondeterminism_of_the_reference_is_named() -> None:
    counter = iter(range(100))

    def body(transfer: Transfer, inputs: Any) -> Any:
        return inputs[0] + next(counter)

    verdict = TwinRun("cpu").check(Call(body, (matrix(),)))
    assert {mismatch.kind for mismatch in verdict.mismatches} == {"value", "nondeterministic"}


def test_nondeterminism_that_torch_declares_needs_not_be_seen() -> None:
    runs = iter(range(100))

    def body(transfer: Transfer, inputs: Any) -> Any:
        if torch.are_deterministic_algorithms_enabled():
            torch.empty(4).put_(torch.tensor([0, 0]), torch.ones(2))  # has no deterministic form
        return inputs[0] + (next(runs) == 1)  # the device's run

    verdict = TwinRun("cpu").check(Call(body, (matrix(),)))
    assert {mismatch.kind for mismatch in verdict.mismatches} == {"value", "nondeterministic"}
    assert not torch.are_deterministic_algorithms_enabled()


def test_tolerance_is_for_values_only() -> None:
    close = Tolerance("close", rtol=1e-3)
    metadata = Tolerance("metadata")
    wrong: Function = lambda x: x + 1  # noqa: E731
    near: Function = lambda x: (x + 1) * 1.0001  # noqa: E731
    far: Function = lambda x: (x + 1) * 2  # noqa: E731
    assert kinds_seen(wrong, near, matrix(), tolerance=close) == set()
    assert "value" in kinds_seen(wrong, far, matrix(), tolerance=close)
    assert kinds_seen(wrong, far, matrix(), tolerance=metadata) == set()
    wider: Function = lambda x: (x + 1).double()  # noqa: E731
    rows = Tolerance(ignore=frozenset({"dtype"}))
    assert kinds_seen(wrong, wider, matrix().int(), tolerance=rows) == {"storage size"}
    assert "dtype" in kinds_seen(wrong, wider, matrix(), tolerance=metadata)


@pytest.mark.parametrize("dtype", [torch.complex32, torch.complex64], ids=str)
def test_a_view_is_its_resolved_form_where_flags_are_ignored(dtype: torch.dtype) -> None:
    """To the bit: the stored elements of a conjugate view have other signs than those of the resolved one."""
    parts = torch.tensor([[1.0, 2.0], [3.0, 0.0], [0.0, 5.0]])
    signs = torch.tensor([[1.0, -1.0]])
    stored, resolved = (torch.view_as_complex(each).to(dtype) for each in (parts, parts * signs))
    other = torch.view_as_complex((parts * signs).abs()).to(dtype)
    hidden = frozenset({"flags", "view", "storage size"})

    def kinds(actual: torch.Tensor, expected: torch.Tensor, *ignored: str) -> set[str]:
        tolerance = Tolerance(ignore=hidden & set(ignored))
        pair = (observe((), each) for each in (expected, actual))
        return {each.kind for each in compare(*pair, tolerance, device_type="cpu")}

    assert kinds(resolved, stored.conj(), *hidden) == set()
    assert kinds(stored.conj(), resolved, *hidden) == set()
    plain = torch.tensor([1.0, 0.0])
    assert kinds(plain, plain.neg()._neg_view(), *hidden) == set()
    assert kinds(other, stored.conj(), *hidden) == {"value"}
    assert {"flags", "value"} <= kinds(resolved, stored.conj(), "view")


def test_other_kernels_are_compared_within_tolerances() -> None:
    wrong: Function = lambda x: x + 1  # noqa: E731
    near: Function = lambda x: (x + 1) * (1 + 1e-6)  # noqa: E731
    far: Function = lambda x: (x + 1) * (1 + 1e-3)  # noqa: E731
    wider: Function = lambda x: (x + 1).double()  # noqa: E731
    assert "value" in kinds_seen(wrong, near, matrix())
    assert kinds_seen(wrong, near, matrix(), close=True) == set()
    assert "value" in kinds_seen(wrong, far, matrix(), close=True)
    assert kinds_seen(wrong, far, matrix().bfloat16(), close=True) == set()
    assert "dtype" in kinds_seen(wrong, wider, matrix(), close=True)
    metadata = Tolerance("metadata")
    assert kinds_seen(wrong, far, matrix(), tolerance=metadata, close=True) == set()
    place: Function = lambda x: x.float().argsort() + 100  # noqa: E731
    beside: Function = lambda x: x.float().argsort() + 101  # noqa: E731
    assert "value" in kinds_seen(place, beside, matrix().bfloat16(), close=True)


def test_a_transfer_keeps_what_kernels_see() -> None:
    base = torch.arange(24.0)
    window = base.as_strided((2, 3), (1, 4), 5)
    conjugate = torch.randn(3, dtype=torch.complex64).conj()
    sparse = torch.eye(3).to_sparse_csr()
    parameter = torch.nn.Parameter(torch.ones(2))
    given = (base, window, [window], conjugate, sparse, parameter, torch.device("cpu"))
    moved = Transfer(torch.device("cpu")).tree(given)
    assert moved[1].stride() == (1, 4) and moved[1].storage_offset() == 5
    assert moved[1].untyped_storage()._cdata == moved[0].untyped_storage()._cdata
    assert moved[0].untyped_storage()._cdata != base.untyped_storage()._cdata
    assert moved[2][0] is moved[1]
    assert moved[3].is_conj() and torch.equal(moved[3], conjugate)
    assert moved[4].layout == torch.sparse_csr
    assert isinstance(moved[5], torch.nn.Parameter) and moved[5].requires_grad


@pytest.mark.parametrize(
    "case",
    [
        Case("op", "add", "int64"),
        Case("op", "sort", "float32"),
        Case("module", "nn.GRU", "float32"),
        Case("optim", "Adam", "float32"),
        Case("foreach", "_foreach_addcmul", "float32"),
    ],
    ids=str,
)
def test_the_host_agrees_with_itself(case: Case) -> None:
    result = check_case(case, TwinRun("cpu"), Expectations.load(), sample_limit=3)
    assert result["failures"] == []
    assert list(result["variants"]) == variants_of(case)
    assert all(counts["samples"] > 0 for counts in result["variants"].values())


def test_the_databases_are_whole() -> None:
    from torch.testing._internal.common_methods_invocations import op_db
    from torch.testing._internal.common_modules import module_db
    from torch.testing._internal.common_optimizers import optim_db

    cases = all_cases()
    assert len({c.name for c in cases if c.database == "op"}) == len(
        [op for op in op_db if op.supported_dtypes("cpu")]
    )
    assert len({c.name for c in cases if c.database == "module"}) == len(module_db)
    assert len({c.name for c in cases if c.database == "optim"}) == len(optim_db)
    pairs = sum(len(op.supported_dtypes("cpu")) for op in op_db)
    assert len([c for c in cases if c.database == "op"]) == pairs


SABOTAGE = """
import os, time, torch
library = torch.library.Library("aten", "IMPL")
library.impl("sinh", lambda x: os.abort(), "CPU")
library.impl("cosh", lambda x: time.sleep(3600), "CPU")

def is_lost(*_, **__):
    raise RuntimeError("the device is lost")

def loses(x):
    torch.ones = is_lost
    is_lost()

library.impl("erfc", loses, "CPU")
"""


@pytest.mark.slow
def test_a_crash_and_a_hang_cost_only_their_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sabotage.py").write_text(SABOTAGE)
    monkeypatch.syspath_prepend(tmp_path)
    checks = Checks("cpu", "cpu", plugin="sabotage", sample_limit=2)
    cases = [Case("op", name, "float32") for name in ("sinh", "cosh", "erfc", "tanh")]
    results = list(pool.run(checks, cases, jobs=2, time_limit=15.0))
    summary = summarize(results, Expectations(), complete=False)
    assert summary.passed["op"] == 1
    assert not summary.ungenerated, "nothing is left to a process that lost its device"
    crashes = {failure.case.name: failure for failure in summary.crashes}
    assert crashes["sinh"].kinds == {"crash"}
    assert "SIGABRT" in crashes["sinh"].mismatches[0][1]
    assert crashes["cosh"].kinds == {"timeout"}
    assert crashes["cosh"].variant == "forward"
    assert crashes["erfc"].kinds == {"crash"} and crashes["erfc"].variant == "forward"
    assert "tanh" not in crashes


@pytest.mark.slow
def test_a_worker_that_cannot_start_is_an_error() -> None:
    checks = Checks("cpu", "cpu", plugin="no_such_module_here")
    with pytest.raises(RuntimeError, match="no_such_module_here"):
        list(pool.run(checks, [Case("op", "add", "float32")], jobs=1, time_limit=60.0))


def result(name: str, dtype: str, failing: tuple[str, ...] = ()) -> dict[str, Any]:
    counts = {"samples": 4, "failed": 0, "reference_raised": 1, "ungenerated": 0}
    return {
        "database": "op",
        "name": name,
        "dtype": dtype,
        "variants": {v: {**counts, "failed": int(v in failing)} for v in ("forward", "backward")},
        "failures": [
            {
                "variant": variant,
                "sample": 2,
                "inputs": "float32[3]",
                "mismatches": [{"kind": "value", "message": "1 of 3 elements differ"}],
            }
            for variant in failing
        ],
    }


def expectations(**entry: Any) -> Expectations:
    return Expectations.parse({"expected": [{"reason": "known", **entry}]})


def test_an_unexpected_failure_fails_the_run() -> None:
    summary = summarize([result("add", "float32", ("forward",))], Expectations(), complete=True)
    assert not summary.ok
    assert [str(failure.case) for failure in summary.unexpected] == ["op:add[float32]"]
    text = terminal(summary, 1.0)
    assert "FAIL op:add[float32] forward sample 2" in text and "1 of 3 elements differ" in text


def test_an_expected_failure_still_counts_as_failed() -> None:
    known = expectations(ops=["add"], variants=["forward"])
    summary = summarize([result("add", "float32", ("forward",))], known, complete=True)
    assert summary.ok and summary.passed["op"] == 0 and summary.total["op"] == 1
    document = markdown(
        summary, known, device="flagos", reference="cpu", torch_version="2.11.0+cpu"
    )
    assert "| op `add` | float32 | forward | known |" in document


def test_an_expected_failure_that_passes_is_stale() -> None:
    known = expectations(ops=["add"])
    passing = [result("add", "float32")]
    assert "passes now" in summarize(passing, known, complete=True).stale[0]
    assert not summarize(passing, known, complete=True).ok
    # With few samples nothing is known about it.
    assert summarize(passing, known, complete=False).ok


def test_an_entry_wider_than_its_failures_is_stale() -> None:
    known = expectations(ops=["add"], variants=["forward"])
    results = [result("add", "float32", ("forward",)), result("add", "int64")]
    stale = summarize(results, known, complete=True).stale
    assert len(stale) == 1 and "op:add[int64] forward" in stale[0]


def test_an_intermittent_failure_may_pass() -> None:
    known = expectations(ops=["add"], intermittent=True)
    assert summarize([result("add", "float32")], known, complete=True).ok


@pytest.mark.parametrize(
    "document",
    [
        {"expected": [{"ops": ["add"]}]},
        {"expected": [{"ops": ["add"], "reason": "x", "dtype": ["float32"]}]},
        {"expected": [{"ops": "add", "reason": "x"}]},
        {"tolerance": [{"ops": ["add"], "reason": "x"}]},
        {"tolerance": [{"ops": ["add"], "reason": "x", "compare": "vaguely"}]},
        {"tolerances": []},
    ],
)
def test_a_malformed_list_is_an_error(document: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"expected\.toml"):
        Expectations.parse(document)


def test_the_checked_in_list_names_cases_that_exist() -> None:
    known = Expectations.load()
    cases = all_cases((*DATABASES, *ON_REQUEST))
    for entry in (*known.expected, *(entry for entry, _ in known.tolerances)):
        covered = [c for c in cases if any(entry.covers(c, v) for v in variants_of(c))]
        assert covered, f"{entry} covers nothing"


def test_a_report_is_of_a_run_made_now(tmp_path: Path) -> None:
    earlier, report = tmp_path / "earlier.json", tmp_path / "report.md"
    result = {"failures": [], "variants": {}}
    case = Case("op", "abs", "float32").to_json()
    earlier.write_text(json.dumps({"results": [{**case, **result}]}))
    with pytest.raises(SystemExit, match="--from-json"):
        main(["--from-json", str(earlier), "--report", str(report)])
    assert not report.exists()
    again = tmp_path / "again.json"
    assert main(["--from-json", str(earlier), "--ops", "abs", "--json", str(again)]) == 0
    assert json.loads(again.read_text())["results"][0]["name"] == "abs"
