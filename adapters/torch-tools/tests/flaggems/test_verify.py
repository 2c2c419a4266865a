"""`flagos verify`: verdicts on right, wrong, crashing and hanging kernels; tables; time."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from importlib.metadata import PackageNotFoundError
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch.testing._internal.opinfo.core import OpInfo, SampleInput, UnaryUfuncInfo

import torch_fl
from adapters.torch.tests.flaggems.conftest import of_the_tested_version
from flagos.processes.pool import TaskOutcome
from torch_fl import python_kernels, replay
from torch_fl.flaggems import envelope, implementations, package, table_file, tables
from torch_fl.flaggems.table_file import FAILED, STRICT, UNTESTED
from torch_fl.native.description import description
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems import cases, check, comparison, running, samples, tally
from torch_fl_tools.flaggems.verify import command as verify_command
from torch_fl_tools.flaggems.verify import entries, summary
from torch_fl_tools.flaggems.verify import run as verify_run

from .database import DATABASE
from .whole import WHERE


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """FlagGems, before anything forks."""
    package.load_before_forking()


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is lost after errors with the word CHIP_LOST, as its vendor says; the host's never is."""
    monkeypatch.setitem(description(), "device_lost", ["CHIP_LOST"])


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small database of operators."""
    monkeypatch.setattr(cases, "database", lambda: DATABASE)


_ASKS_NOTHING = """
import importlib.machinery
import sys
from types import SimpleNamespace
from unittest import mock
import torch
from torch_fl.flaggems import interpreted, package
from torch_fl_tools.flaggems import cases

chip = SimpleNamespace(name="A chip", major=9, minor=0, gcnArchName="", multi_processor_count=132)
answers = dict(is_available=True, device_count=2, current_device=0, get_device_name=chip.name)
answers |= dict(get_device_capability=(9, 0), get_device_properties=chip)
asked = []

def asks(*_):
    asked.append(1)
    return 0

class Numba:
    # As installed: found, imported, and asked whether it has CUDA.
    def find_spec(self, name, path=None, target=None):
        if name in ("numba", "numba.cuda"):
            return importlib.machinery.ModuleSpec(name, self, is_package=name == "numba")

    def create_module(self, spec):
        return None

    def exec_module(self, module):
        module.is_available = asks

sys.meta_path.insert(0, Numba())

with (
    mock.patch.object(package, "_answers", lambda: answers if sys.argv[1:] else {}),
    mock.patch.object(package, "_device_module", lambda: torch.cuda),
    mock.patch.object(interpreted, "wanted", lambda: False),
    mock.patch.object(torch._C, "_cuda_getDeviceCount", asks, create=True),
    mock.patch.object(torch._C, "_cuda_init", asks, create=True),
    mock.patch.object(torch.cuda, "_is_compiled", lambda: True),
    package.asking_another_process(),
):
    cases.database()
print(len(asked))
"""


@pytest.mark.slow
@pytest.mark.parametrize("answered", [True, False])
def test_the_database_is_imported_without_asking_cuda(answered: bool) -> None:
    """A process that asks opens the driver, and its forks could not use it. The control asks by itself."""
    command = [sys.executable, "-c", _ASKS_NOTHING, *(["answered"] if answered else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert (int(done.stdout) == 0) == answered


def test_a_device_that_forked_processes_cannot_use_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise OSError("no such chip")

    monkeypatch.setattr(verify_run.flagos, "is_initialized", lambda: False)  # other tests used it
    monkeypatch.setattr(torch, "ones", fails)
    with pytest.raises(RuntimeError, match="cannot use the device: OSError: no such chip"):
        verify_run.verify("silu", jobs=1)


def test_what_is_right_is_strict() -> None:
    for overload in ("silu", "silu_backward", "mul.Tensor"):
        found = check.check(overload, WHERE[overload], 1)
        assert found["verdict"] == STRICT, (overload, found)
        assert found["cases"] > 1 and found["first"] is None


def test_an_operand_and_its_transpose_are_a_case() -> None:
    group = cases.Group("mul", "function", torch.float32)
    labels = dict(group.samples(1))
    on_flagos = samples.on_flagos(labels["a matrix with its own transpose"])
    x, y = on_flagos.input, on_flagos.args[0]
    assert x.data_ptr() == y.data_ptr() and x.stride() == y.stride()[::-1]


def test_an_overload_that_no_form_calls_is_called_itself(served_by: Any) -> None:
    where = [("nn.functional.silu", "silu_")]
    assert check.check("silu_", where, 1)["verdict"] == STRICT
    served_by("silu_", lambda x: x.copy_(torch.ops.aten.silu(x) * 1.001))
    found = check.check("silu_", where, 1)
    assert found["verdict"] == FAILED and "silu (silu_)" in found["first"], found
    x, y = torch.tensor([2.0, 3.0]), torch.tensor([5.0, 7.0])
    sample = SampleInput(x, args=(y,))
    bounds = cases._directly(torch.clamp, "clamp")
    low, high = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 9.0])
    bounded = SampleInput(torch.tensor([-2.0, 2.0]), args=(low,), kwargs={"max": high})
    assert bounds(bounded).tolist() == [-1.0, 1.0], "of each its first number, which are optional"
    by_a_number = cases._directly(torch.mul, "mul.Scalar")
    assert by_a_number(sample).tolist() == [10.0, 15.0], "of a tensor the first"
    of_a_number = cases._directly(torch.mul, "mul.Tensor")
    assert of_a_number(SampleInput(x, args=(2,))).tolist() == [4.0, 6.0]
    out = cases._directly(torch.mul, "mul.Scalar_out")
    assert out(sample).tolist() == [10.0, 15.0]


def test_samples_of_our_own_come_after_the_first() -> None:
    """Time may end before the database's last."""
    labels = [label for label, _ in cases.Group("mul", "function", torch.float32).samples(9)]
    ours = labels.index("a matrix with its own transpose")
    assert [label for label in labels[:ours] if cases.plain(label)] == [
        f"sample {index}" for index in range(cases.FIRST)
    ]
    rest = [label for label in labels[ours:] if cases.plain(label)]
    assert rest == labels[-3:] == [f"sample {index}" for index in range(cases.FIRST, 9)]


def _through_float32(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    kind = torch.promote_types(x.dtype, y.dtype)
    return (x.float() * y.float()).to(kind)


@pytest.mark.parametrize(
    ("overload", "kernel", "case"),
    [
        ("mul.Tensor", _through_float32, "with large integers"),
        ("mul.Tensor", lambda x, y: (x * y).where(~x.isnan(), y), "with NaN and infinities"),
        ("mul.Tensor", lambda x, y: x.float() * y.float(), "int64, sample"),
        ("silu_backward", lambda g, x: torch.ops.aten.silu_backward(g, x).nan_to_num(), "gradient"),
        ("exp", lambda x: x.copy_(x.exp()) if x.is_contiguous() else x.exp(), "sample 0"),
        ("exp", lambda x: x.exp().expand(2, *x.shape)[0] if x.dim() else x.exp(), ""),
    ],
    ids=["precision", "NaN that meets a number", "type", "NaN in a gradient", "writes", "control"],
)
def test_what_small_samples_do_not_tell_is_found(
    served_by: Any, overload: str, kernel: Any, case: str
) -> None:
    served_by(overload, kernel)
    entry = {"mul.Tensor": "mul", "silu_backward": "nn.functional.silu", "exp": "exp"}[overload]
    found = check.check(overload, [(entry, "gradient" if "silu" in entry else "function")])
    if case:
        assert found["first"] is not None and case in found["first"], found
    else:
        assert found["verdict"] == STRICT and found["first"] is None, found


def test_numbers_that_samples_leave_at_their_defaults(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradient of `celu` is `elu_backward`, whose scales are others than `elu`'s."""
    other = UnaryUfuncInfo(
        "celu",
        op=torch.nn.functional.celu,
        ref=None,
        dtypes={torch.float32},
        supports_out=False,
        sample_kwargs=lambda *_: ({"alpha": 0.8}, {}),
    )
    monkeypatch.setattr(cases, "database", lambda: {"celu": other})
    elu_backward = torch.ops.aten.elu_backward

    def forgets(grad: Any, alpha: Any, scale: Any, input_scale: Any, *rest: Any) -> Any:
        return elu_backward(grad, alpha, scale, scale, *rest)

    served_by("elu_backward", forgets)
    found = check.check("elu_backward", [("celu", "gradient")])
    assert found["verdict"] == FAILED and "with other numbers" in found["first"], found


def test_an_answer_that_is_an_argument_is_declined(served_by: Any) -> None:
    """FlagGems' own `cat`, which torch has make a tensor in any case; and one that returns a view is wrong."""
    x = torch.ones(2, 3)
    ours = x.to("flagos")
    with torch_fl.route({"cat": "flaggems"}):
        before = torch_fl.counters().get("aten::cat", {}).get("fallbacks", 0)
        made = torch.cat([ours])
        made.add_(1)
        assert ours.cpu().equal(x), "it is another"
        assert torch_fl.counters()["aten::cat"]["fallbacks"] == before + 1
    base = torch.zeros(4)
    assert comparison.compare([x, base], [x, base], False)[0] == STRICT
    found = comparison.compare([base[:2].clone(), base], [base[:2], base], False)
    assert found[0] == FAILED and "shares its memory" in found[1], found


def test_a_kernel_that_takes_the_transpose_for_the_operand_is_found(served_by: Any) -> None:
    served_by("mul.Tensor", lambda x, y: x * (x if y.data_ptr() == x.data_ptr() else y))
    found = check.check("mul.Tensor", WHERE["mul.Tensor"], 2)
    assert found["verdict"] == STRICT and found["only"] == ["contiguous"], found
    assert found["outside"] > 0 and "its own transpose" in found["first"]


@of_the_tested_version()
def test_a_kernel_that_reads_no_strides_is_found(served_by: Any) -> None:
    """FlagGems 5.0.2's own `mul` for Hopper, which on other chips is another."""
    found = package.folder()
    assert found is not None
    # Its package needs the chip.
    path = found / "runtime/backend/_nvidia/hopper/ops/mul.py"
    spec = importlib.util.spec_from_file_location("hopper_mul", path)
    assert spec is not None and spec.loader is not None
    hopper = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hopper)
    served_by("mul.Tensor", hopper.mul)
    verdict = check.check("mul.Tensor", WHERE["mul.Tensor"], 1)
    assert verdict["verdict"] == FAILED, verdict
    assert "a matrix with its own transpose" in verdict["first"], verdict
    x, y = torch.ones(4, 1), torch.ones(1, 6)
    assert hopper.mul(x, y).shape == (4, 1), "nor does it broadcast between as many dimensions"


def _reads_no_strides(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    in_a_row = torch.empty(grad.shape).stride()
    return torch.ops.aten.silu_backward(grad.as_strided(grad.shape, in_a_row), x)


def _takes_another_element(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.silu_backward(grad.flatten().flip(0).view(grad.shape), x)


@pytest.mark.parametrize(
    ("kernel", "verdict"),
    [(_reads_no_strides, ["contiguous"]), (_takes_another_element, FAILED)],
)
def test_a_gradient_is_not_ones_in_a_row(
    served_by: Any, kernel: Any, verdict: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    served_by("silu_backward", kernel)
    found = check.check("silu_backward", WHERE["silu_backward"], 3)
    assert verdict == (found.get("only") or found["verdict"]), found
    monkeypatch.setattr(cases, "_incoming", lambda output, _: torch.ones_like(output))
    found = check.check("silu_backward", WHERE["silu_backward"], 3)
    assert found["verdict"] == STRICT and "only" not in found, "the control notices neither"


def test_samples_are_copied_with_their_strides_and_sharing() -> None:
    from torch.testing._internal.opinfo.core import SampleInput

    base = torch.arange(12.0)
    sample = SampleInput(base[2:8], args=(base[2:8].flip(0), base[:1].expand(5), base[3:]))
    made = samples.on_flagos(sample)
    x, _, wide, rest = made.input, *made.args
    assert wide.stride() == (0,) and wide.cpu().tolist() == [0.0] * 5
    assert rest.data_ptr() - x.data_ptr() == 4
    x.zero_()
    assert rest.cpu().tolist() == [0.0] * 5 + [8.0, 9.0, 10.0, 11.0]
    assert base.tolist() == list(range(12)), "it is a copy"


@pytest.mark.parametrize(
    ("kernel", "verdict", "said"),
    [
        (lambda x: torch.exp(x) * 1.00001, table_file.BASIC, "not close"),
        (lambda x: torch.exp(x) * 1.00003, FAILED, "not close"),
        (lambda x: torch.exp(x) * 1.001, FAILED, "not close"),
        (lambda x: torch.exp(x).double(), FAILED, "torch.float64"),
        (lambda x: torch.exp(x)[None], FAILED, "instead of"),
        (lambda x: torch.exp(x).nan_to_num(), FAILED, "NaN"),
        (lambda x: x.view(0), FAILED, "RuntimeError"),
    ],
    ids=["ten times", "twenty times", "values", "dtype", "shape", "NaN", "raises"],
)
def test_what_is_wrong_is_not_strict(served_by: Any, kernel: Any, verdict: str, said: str) -> None:
    served_by("exp", kernel)
    found = check.check("exp", [("exp", "function")], 1)
    assert found["verdict"] == verdict and said in found["first"], found


def test_other_strides_are_basic() -> None:
    x = torch.rand(3, 4)
    assert comparison.compare([x], [x.t().contiguous().t()], False) == (
        table_file.BASIC,
        "strides (1, 3) instead of (4, 1)",
    )


def test_what_is_never_served_is_untested(served_by: Any) -> None:
    def declines(x: torch.Tensor) -> torch.Tensor:
        raise NotImplementedError("not today")

    served_by("exp", declines)
    found = check.check("exp", [("exp", "function")], 1)
    assert found["verdict"] == UNTESTED and "another way" in found["first"]


def test_time_is_shared_by_forms_and_types() -> None:
    shares = cases.shares("silu", WHERE["silu"], 3)
    turns = check._in_turns(cases.groups(WHERE["silu"]), shares, lambda group: None)
    order = [index for index, _ in turns]
    groups = len(cases.groups(WHERE["silu"]))
    assert groups > 1 and order[:groups] == list(range(groups))
    found = check.check("silu", WHERE["silu"], 3, seconds=0)
    assert found["verdict"] == UNTESTED and found["not_reached"] == groups


def test_a_type_that_was_only_declined_is_not_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(case: Any, *_: Any) -> None:
        case.verdict = None if "int64" in case.name else STRICT
        case.calls.append(frozenset(envelope.CONDITIONS))

    clock = SimpleNamespace(monotonic=count().__next__)
    monkeypatch.setattr(check, "judge", judge)
    monkeypatch.setattr(check, "time", clock)
    where = [("exp", "function")]
    found = check.check("exp", where, 9, seconds=2)  # each had one turn
    assert found["verdict"] == UNTESTED and found["not_reached"] == 1, found
    assert check.check("exp", where, 9)["verdict"] == STRICT, "none of its samples is taken"


def test_only_what_stops_in_flaggems_is_its_fault() -> None:
    steps: list[str] = []
    check.check("exp", [("exp", "function")], 1, report=lambda step, _: steps.append(step))
    group = "exp (function) float32"
    assert steps[:3] == [
        f"making a sample of {group}",
        f"the native run of {group}, sample 0",
        f"FlagGems' run of {group}, sample 0",
    ]
    strict = {"verdict": STRICT, "cases": 2, "first": None}
    for step in steps:
        one = TaskOutcome("exp", 1.0, failure="it died", step=step, partial=dict(strict))
        found = verify_run.verdict(one)
        expected = FAILED if step.startswith("FlagGems' run of exp") else UNTESTED
        assert found["verdict"] == expected and found["first"] == f"it died in {step}"


def test_what_is_late_is_wrong_only_by_itself() -> None:
    step = "FlagGems' run of mm (function) float32, sample 0"
    late = TaskOutcome("mm", 1.0, failure="it took longer than 1 s", late=True, step=step)
    beside = verify_run.verdict(late)
    assert beside["verdict"] == UNTESTED and "beside other processes" in beside["first"]
    assert entries.is_cut(beside), "--resume tries it again"
    alone = verify_run.verdict(late, by_itself=True)
    assert alone["verdict"] == alone["plain"] == FAILED and not entries.is_cut(alone)


def test_the_verdict_on_the_samples_as_they_are(served_by: Any) -> None:
    where = [("exp", "function")]
    served_by("exp", lambda x: torch.exp(x).nan_to_num())
    found = check.check("exp", where, 1)
    assert found["verdict"] == FAILED and found["plain"] == STRICT, found
    served_by("exp", lambda x: torch.exp(x) * 1.001)
    assert check.check("exp", where, 1)["plain"] == FAILED
    # A task that ends in a variation has not seen all samples.
    step = "FlagGems' run of exp (function) float32, sample 0, not contiguous"
    died = TaskOutcome("exp", 1.0, failure="it died", step=step, partial={**found})
    assert verify_run.verdict(died)["plain"] == UNTESTED


def test_what_no_condition_leaves_out_is_told(served_by: Any) -> None:
    def kernel(x: torch.Tensor) -> torch.Tensor:
        if not x.is_contiguous():
            raise RuntimeError("not contiguous")
        return torch.exp(x).nan_to_num()

    served_by("exp", kernel)
    found = check.check("exp", [("exp", "function")], 1)
    assert found["verdict"] == FAILED and "not contiguous" in found["first"], found
    assert "with NaN and infinities" in found["within_all"], found
    served_by("exp", lambda x: torch.exp(x) * 1.001)
    assert "within_all" not in check.check("exp", [("exp", "function")], 1), "it is the first"


@pytest.mark.parametrize("repeats", [True, False])
def test_replays_are_like_a_call_that_does_not_repeat_itself(
    served_by: Any, monkeypatch: pytest.MonkeyPatch, repeats: bool
) -> None:
    """Bit for bit only where the native kernels are; `repeats`: the control."""
    calls = count()

    def samples(*_: Any, **__: Any) -> Any:
        yield SampleInput(torch.linspace(-1, 1, 10))

    def noisy(x: Any) -> Any:
        made = torch.exp(x)
        times = next(calls)
        native = str(torch_fl.explain("exp").data["winner"]).startswith("cpu")
        return made * (1 + 1e-7 * (times % 2)) if not (native and repeats) else made

    other = OpInfo("exp", op=noisy, dtypes={torch.float32}, sample_inputs_func=samples)
    monkeypatch.setattr(cases, "database", lambda: {"exp": other})
    monkeypatch.setattr(replay, "enabled", lambda: True)  # nothing is replayed without a GPU
    found = check.check("exp", [("exp", "function")], 1)
    assert found["verdict"] == (FAILED if repeats else STRICT), found
    assert not repeats or "a repeated call differs" in found["first"]


def test_what_flaggems_does_not_take_is_served_natively_and_told(served_by: Any) -> None:
    """FlagGems declines by its own errors; torch's errors, and errors after a possible write, are the caller's."""

    def kernel(x: torch.Tensor) -> torch.Tensor:
        if x.isnan().any():
            raise AssertionError("no NaN, please")
        return torch.exp(x)

    where = [("exp", "function")]
    served_by("exp", kernel)
    found = check.check("exp", where, 2)
    assert found["verdict"] == STRICT and "only" not in found, found
    assert found["declined"] == 1 and "AssertionError: no NaN, please" in found["declines"], found
    assert "sample 0, with NaN and infinities" in found["declines"]
    shown = summary.lines({"exp": found})
    assert shown[0].startswith("exp: declines calls, 1 cases: exp (function) float32"), shown
    x = torch.tensor([float("nan"), 1.0])
    ours = x.to("flagos")
    with torch_fl.route({"exp": "flaggems"}):
        before = torch_fl.counters().get("aten::exp", {}).get("fallbacks", 0)
        torch.testing.assert_close(ours.exp().cpu(), x.exp(), equal_nan=True)
        assert torch_fl.counters()["aten::exp"]["fallbacks"] == before + 1
    served_by("exp_", kernel)
    with torch_fl.route({"exp_": "flaggems"}), pytest.raises(AssertionError, match="please"):
        ours.exp_()
    served_by("exp", lambda x: x.view(7))
    with (
        torch_fl.route({"exp": "flaggems"}),
        pytest.raises(RuntimeError, match="invalid for input"),
    ):
        ours.exp()


def test_what_torch_says_may_differ_is_no_fault_of_a_replay(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though it happened to repeat itself."""

    def puts(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).put_(torch.tensor([0], device=x.device), x[0, :1])

    differs = count()
    served_by("exp", lambda x: torch.exp(x) * (1 + 1e-7 * (next(differs) % 2)))
    for op, verdict in ((torch.exp, FAILED), (puts, STRICT)):
        one = OpInfo("exp", op=op, dtypes={torch.float32}, sample_inputs_func=_one_matrix)
        monkeypatch.setattr(cases, "database", lambda one=one: {"exp": one})
        monkeypatch.setattr(replay, "enabled", lambda: True)  # nothing is replayed without a GPU
        found = check.check("exp", [("exp", "function")], 1)
        assert found["verdict"] == verdict, found
    assert not torch.are_deterministic_algorithms_enabled()


def _one_matrix(*_: Any, **__: Any) -> Any:
    yield SampleInput(torch.linspace(0.5, 1, 12).reshape(3, 4))


def test_bits_of_one_element_with_strides_of_their_own() -> None:
    one = torch.arange(4.0)[::2][:1]
    assert one.stride() == (2,) and comparison.same_bits(
        [one], [one.clone().as_strided((1,), (2,))]
    )
    assert not comparison.same_bits([one], [one + 1]) and not comparison.same_bits([one], [])


@pytest.mark.usefixtures("losing")
def test_a_device_lost_by_the_native_kernel_says_nothing_of_flaggems(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outcome = running.outcome

    def loses(call: Any, sample: Any) -> Any:
        if sample.input.isnan().any():
            return [], RuntimeError("CHIP_LOST: assertion")
        return outcome(call, sample)

    monkeypatch.setattr(running, "outcome", loses)
    where = [("exp", "function")]
    found = check.check("exp", where, 1)
    case = "exp (function) float32, sample 0, with NaN and infinities"
    assert found["loss"].case == case and found["plain"] == UNTESTED
    lost = verify_run.verdict(TaskOutcome("exp", 1.0, found))
    assert lost["verdict"] == UNTESTED and case in lost["first"]
    by_itself = check.check("exp", where, 1, losses=[found["loss"]])
    assert by_itself["loss"].case == case and by_itself["loss"].sure
    again = check.check("exp", where, 1, losses=[by_itself["loss"]])
    assert "loss" not in again and again["verdict"] == STRICT, again
    assert case in again["left_out"]


@pytest.mark.usefixtures("losing")
def test_a_device_lost_by_flaggems_is_a_case_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each loss ends its process; the next process learns of it, so that conditions can be found."""
    outcome, runs = running.outcome, []

    def loses(call: Any, sample: Any) -> Any:
        made = outcome(call, sample)
        told = implementations.function("exp").on_call
        called = told is not None and bool(told.__self__)
        if called and sample.input.numel() == 0:
            runs.append(sample)
            return [], RuntimeError("CHIP_LOST: illegal memory access")
        return made

    def samples(*_: Any, **__: Any) -> Any:
        return iter([SampleInput(torch.rand(n)) for n in (5, 0, 7)])

    other = OpInfo("exp", op=torch.exp, dtypes={torch.float32}, sample_inputs_func=samples)
    monkeypatch.setattr(cases, "database", lambda: {"exp": other})
    monkeypatch.setattr(running, "outcome", loses)
    where = [("exp", "function")]
    found = check.check("exp", where, 3)
    case = "exp (function) float32, sample 1"
    assert found["loss"].case == case and not found["loss"].native and len(runs) == 1
    assert found["loss"].broken == {"nonempty"}
    lost = verify_run.verdict(TaskOutcome("exp", 1.0, found))
    assert lost["verdict"] == FAILED and "illegal memory access" in lost["first"]
    again = check.check("exp", where, 3, losses=[found["loss"]])
    assert "loss" not in again and again["plain"] == FAILED, again
    assert again["verdict"] == STRICT and again["only"] == ["nonempty"], again
    assert case in again["first"] and "illegal memory access" in again["first"]
    assert len(runs) == 1, "no call without elements was tried again"


@pytest.mark.parametrize("short_of", ["nothing", "a case", "every case", "the native kernel"])
def test_what_finds_no_memory_is_no_verdict(
    served_by: Any, monkeypatch: pytest.MonkeyPatch, short_of: str
) -> None:
    calls, run = count(), running.outcome

    def without(x: torch.Tensor) -> torch.Tensor:
        if short_of == "every case" or (short_of == "a case" and next(calls) == 0):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
        return x.cpu().exp().to(x.device)

    def natively(call: Any, sample: Any) -> Any:
        if short_of == "the native kernel":
            raise RuntimeError("CUDA error: out of memory")
        return run(call, sample)

    served_by("exp", without)
    monkeypatch.setattr(running, "outcome", natively)
    found = check.check("exp", [("exp", "function")], 3)
    assert found.get("short", False) == (short_of != "nothing"), found
    if short_of in ("nothing", "a case"):
        assert found["verdict"] == STRICT and "not_reached" not in found, found
    else:
        assert (found["verdict"], found["cases"]) == (UNTESTED, 0), found
        assert found["first"] == "there was no memory for 2 of 2 forms and types"
        assert found["not_reached"] == 2, "--resume tries it again"


@pytest.mark.usefixtures("losing")
def test_a_device_lost_in_a_repeated_call_is_known(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count()

    def loses(x: torch.Tensor) -> torch.Tensor:
        if x.numel() == 0 and next(calls) > 0:
            raise RuntimeError("CHIP_LOST: illegal memory access")
        return torch.exp(x)

    served_by("exp", loses)
    monkeypatch.setattr(replay, "enabled", lambda: True)  # nothing is replayed without a GPU
    found = check.check("exp", [("exp", "function")], 3)
    assert found["verdict"] == FAILED and found["loss"].broken >= {"nonempty"}, found
    assert not found["loss"].native and "a repeated call raised" in found["first"]


def test_a_loss_that_was_not_come_to_again_leaves_no_conditions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loss could be within the conditions: only another run with them tells."""
    loss = running.Loss("exp (function) float32, sample 2", False, "lost", frozenset(["nonempty"]))
    monkeypatch.setattr(check.time, "monotonic", count(step=1).__next__)
    where = [("exp", "function")]
    found = check.check("exp", where, 3, seconds=8, losses=[loss])
    assert found["not_reached"] == 0, "every type had its turn"
    assert found["verdict"] == FAILED and "only" not in found, found
    assert "sample 2: lost" in found["first"]


def test_what_the_native_kernel_loses_is_left_out_with_its_like() -> None:
    def losing(case: str) -> dict[str, Any]:
        loss = running.Loss(f"exp (function) float32, {case}", True, "lost", frozenset(), sure=True)
        return check.check("exp", [("exp", "function")], 3, losses=[loss])

    found = losing("sample 2")
    assert found["left_out"] == ["exp (function) float32, sample 2"], "and nothing else"
    assert found["verdict"] == STRICT and "loss" not in found
    found = losing("sample 1, with NaN and infinities")
    assert "exp (function) float32, sample 0, with NaN and infinities" in found["left_out"]
    assert all(case.endswith("with NaN and infinities") for case in found["left_out"])
    kind = cases.kind
    assert kind("exp (out) int64, sample 1, not contiguous") == "exp (out) int64, not contiguous"
    assert kind("a (out) bfloat16, sample 1, b") == kind("a (out) float32, sample 0, b")
    assert kind("a (out) int64, sample 1") == "a (out) int64, sample 1"


def test_forms_and_types_of_which_nothing_can_be_compared_leave_no_verdict() -> None:
    group = cases.Group("exp", "function", torch.float32)
    labels = [label for label, _ in group.samples(1)]
    losses = [
        running.Loss(f"{group}, {label}", True, "lost", frozenset(), sure=True) for label in labels
    ]
    found = check.check("exp", [("exp", "function")], 1, losses=losses)
    assert found["verdict"] == found["plain"] == UNTESTED, found
    assert "in every case of 1 forms and types" in found["first"]
    found = check.check("exp", [("exp", "function")], 1, losses=losses[1:])
    assert found["verdict"] == STRICT, found


@pytest.mark.usefixtures("losing")
def test_what_the_native_kernel_may_have_lost_runs_by_itself_first() -> None:
    case = "exp (function) float32, sample 0"
    steps: list[str] = []

    def suspected() -> dict[str, Any]:
        steps.clear()
        suspect = running.Loss(case, True, "late", frozenset())
        where = [("exp", "function")]
        return check.check("exp", where, 1, report=lambda s, _: steps.append(s), losses=[suspect])

    found = suspected()
    assert steps[0] == f"{running.BY_ITSELF}{case}" and f"{running.BY_NATIVE}{case}" in steps
    assert found["verdict"] == STRICT and "left_out" not in found and "loss" not in found
    lost = RuntimeError("CHIP_LOST: assertion")
    with mock.patch.object(running, "outcome", return_value=([], lost)):
        found = suspected()
    assert found["loss"] == running.Loss(case, True, "late", frozenset(), sure=True)
    assert steps == [f"{running.BY_ITSELF}{case}"]


def test_repeated_calls_that_are_declined_are_told(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = count()

    def sometimes(x: torch.Tensor) -> torch.Tensor:
        if next(calls) % 2:
            raise KeyError("again")
        return torch.exp(x)

    served_by("exp", sometimes)
    monkeypatch.setattr(replay, "enabled", lambda: True)  # nothing is replayed without a GPU
    found = check.check("exp", [("exp", "function")], 1)
    assert found["verdict"] == FAILED and "is declined otherwise" in found["first"], found


def test_a_type_that_is_always_declined_waits_for_nothing(
    served_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def samples(op: Any, device: str, dtype: Any, *_: Any, **__: Any) -> Any:
        return (SampleInput(torch.ones(2, dtype=dtype)) for _ in range(50))

    def kernel(x: torch.Tensor) -> torch.Tensor:
        assert x.dtype == torch.float32
        return torch.exp(x)

    served_by("exp", kernel)
    types = {torch.float32, torch.int64}
    other = OpInfo("exp", op=torch.exp, dtypes=types, sample_inputs_func=samples)
    monkeypatch.setattr(cases, "database", lambda: {"exp": other})
    turns: list[int] = []
    taken = check._in_turns

    def some(*args: Any) -> Any:  # then time is up
        for index, case in taken(*args):
            turns.append(index)
            if len(turns) == 2 * (cases.FIRST + 2):
                monkeypatch.setattr(check.time, "monotonic", lambda: float("inf"))
            yield index, case

    monkeypatch.setattr(check, "_in_turns", some)
    found = check.check("exp", [("exp", "function")], None, seconds=1000)
    assert found["verdict"] == STRICT and found["not_reached"] == 0, found
    assert found["declined"] == cases.FIRST + 1


def test_only_what_would_be_served_counts(served_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Right for complex numbers alone, which are served natively."""

    def of_complex_numbers(x: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.exp(torch.complex(x, x)))

    other = OpInfo(
        "exp", op=of_complex_numbers, dtypes={torch.float32}, sample_inputs_func=_one_matrix
    )
    monkeypatch.setattr(cases, "database", lambda: {"exp": other})
    served_by("exp", torch.exp)
    found = check.check("exp", [("exp", "function")], 1)
    assert found["verdict"] == UNTESTED and "another way" in found["first"], found


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize(
    "layout",
    [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc],
)
def test_sparse_results_are_compared(layout: torch.layout) -> None:
    size = (1, 1) if layout in (torch.sparse_bsr, torch.sparse_bsc) else None
    one = torch.eye(3).to_sparse(layout=layout, blocksize=size)
    other = (2 * torch.eye(3)).to_sparse(layout=layout, blocksize=size)
    elsewhere = torch.eye(3).flip(0).to_sparse(layout=layout, blocksize=size)
    assert comparison.compare([one], [one.clone()], False) == (STRICT, "")
    assert comparison.compare([one], [torch.eye(3)], False)[0] == FAILED
    assert comparison.same_bits([one], [one.clone()])
    for differs in (other, elsewhere):
        assert comparison.compare([one], [differs], False)[0] == FAILED
        assert not comparison.same_bits([one], [differs])


def test_how_many_samples_are_taken() -> None:
    """All samples of the overload's own entry; of other entries many where these are few, else some."""
    others = [f"other {n}" for n in range(100)]
    made = {name: SimpleNamespace(name=name, aten_name=name) for name in ["exp", "silu", *others]}
    made["silu"].name = "nn.functional.silu"

    def shares(overload: str, *entries: str, samples: int | None = None) -> list[int]:
        where = [(entry, form) for entry in entries for form in ("function", "gradient")]
        found = cases.shares(overload, where, samples)
        return [found[entry] for entry in entries]

    with mock.patch.object(cases, "database", return_value=made):
        assert (
            shares("exp", "exp")
            == shares("exp_", "exp")
            == shares("exp.out", "exp")
            == [sys.maxsize]
        )
        assert shares("silu_backward", "silu") == shares("silu", "silu") == [sys.maxsize]
        assert shares("exp", "other 1") == [240]
        assert shares("exp", "exp", *others[:9]) == [sys.maxsize, *[24] * 9]
        assert shares("exp", *others) == [6] * 100
        assert shares("exp", "exp", "other 1", samples=2) == [2, 2]


def test_several_patterns() -> None:
    assert matches("mm", "add*, mm") and matches("addmm", "add*,mm")
    assert not matches("bmm", "add*,mm")


def test_a_device_among_the_arguments_is_flagos() -> None:
    made = samples.on_flagos(SampleInput(3, kwargs={"device": "cpu", "dtype": torch.float32}))
    assert torch.eye(made.input, **made.kwargs).device.type == "flagos"


@of_the_tested_version()
def test_what_one_thread_tunes_another_reads() -> None:
    import triton
    from flag_gems.utils.models import SQLPersistantModel

    def tuned_elsewhere(url: str, kernel: str) -> Any:
        model = SQLPersistantModel(url)
        best = triton.Config({"BLOCK": 16}, num_warps=2)
        thread = threading.Thread(target=model.put_config, args=(kernel, (64, "a type"), best))
        thread.start()
        thread.join()
        return model.get_config(kernel, (64, "a type"))

    assert tuned_elsewhere(package._IN_MEMORY, "shared").kwargs == {"BLOCK": 16}
    with pytest.raises(Exception, match="no such table"):  # a database for each connection
        tuned_elsewhere("sqlite:///:memory:", "alone")


def test_few_configurations_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call that is tuned tries the first configurations that fit."""
    from triton.runtime.autotuner import Autotuner

    times = {0: float("inf"), 1: 3.0, 2: 2.0, 3: 1.0}
    compiled: list[int] = []

    def measure(tuner: Any, *_: Any, config: int, **__: Any) -> list[float]:
        compiled.append(config)
        return [times[config]] * 3

    monkeypatch.setattr(Autotuner, "_bench", measure)
    tuner = object.__new__(Autotuner)
    for few, expected in ((2, [0, 1, 2]), (9, [0, 1, 2, 3])):
        with package.tuned_among(few):
            for size in (1, 2):  # two calls
                compiled.clear()
                tuner.nargs = {"n": size}
                found = {c: tuner._bench(size, config=c)[0] for c in times}
                assert compiled == expected
                assert min(found, key=found.__getitem__) == expected[-1]
    assert Autotuner._bench is measure


def test_what_is_made_like_a_tensor_is_on_its_device(served_by: Any) -> None:
    given: list[Any] = []

    def like(x: torch.Tensor, *, device: Any = None, **_: Any) -> torch.Tensor:
        given.append(device)
        return torch.zeros(x.shape)

    served_by("zeros_like", like)
    function = implementations.Function("zeros_like")
    function._given_device = implementations._takes_a_device("zeros_like")
    function(torch.ones(2))
    function(torch.ones(2), device="meta")
    assert given == [torch.device("cpu"), "meta"]
    assert not implementations._takes_a_device("exp") and not implementations._takes_a_device(
        "arange"
    )


# ---- the whole


@pytest.mark.slow
def test_the_whole_in_a_process_that_has_used_no_device() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "adapters.torch-tools.tests.flaggems.whole"],
        cwd=Path(__file__).parents[4],
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split("\n")[-2] == "9 passed"


def test_a_process_that_has_used_the_device_is_refused() -> None:
    torch.ones(1, device="flagos")
    with pytest.raises(RuntimeError, match="in use in this process already"):
        verify_run.verify("exp", 1, 1)


# ---- the command's tables


def _strict(cases: int) -> dict[str, Any]:
    return {"verdict": STRICT, "cases": cases, "first": None}


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`flagos verify --out`, with what it is to find, or what is called instead; the table's file."""
    path = tmp_path / "table.json"

    def run(finds: Any, *arguments: str) -> int:
        def verified(*given: Any) -> Any:
            return finds(given[7]) if callable(finds) else finds

        monkeypatch.setattr(verify_run, "verify", verified)
        return verify_command.main(["--out", str(path), "--no-records", *arguments])

    return run, path


def test_what_was_not_asked_for_or_reached_stays_in_the_table(command: Any) -> None:
    run, path = command
    assert run({"exp": _strict(1), "neg": _strict(1)}) == 0
    during: list[Any] = []

    def finds(kept: Any) -> Any:
        kept({"neg": _strict(2)})
        during.append(tables.continued(path, **_about()))  # --resume would go on from it
        return {"neg": _strict(2)}

    assert run(finds, "--ops", "neg", "--resume") == 0
    assert (
        during == [{"exp": _strict(1), "neg": _strict(2)}] == [tables.continued(path, **_about())]
    )
    assert not table_file.partial(path).exists()
    late = tally.untested("there was no time for it")
    assert run({"exp": _strict(3), "neg": late, "abs": late}, "--seconds", "0") == 0
    known = tables.continued(path, **_about())
    assert known == {"exp": _strict(3), "neg": _strict(2), "abs": late}


def _about(samples: int | None = None) -> dict[str, Any]:
    return {"triton": entries.version_of("triton"), "samples": samples}


def test_an_interrupt_leaves_the_table_as_it_was(
    command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = command
    assert run({"exp": _strict(1)}) == 0
    before = path.read_bytes()
    late = tally.untested("there was no time for it")

    def interrupted(_: Any) -> Any:
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        for number in (signal.SIGTERM, signal.SIGINT):  # GNU timeout sends two
            signal.raise_signal(number)
        return {"exp": late}

    handlers = [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    assert run(interrupted) == 0
    assert handlers == [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)]
    assert path.read_bytes() == before and table_file.partial(path).is_file()
    assert f"what there is lies in {table_file.partial(path)}" in capsys.readouterr().err


def test_a_table_made_otherwise_is_only_replaced_by_a_complete_one(
    command: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run, path = command
    assert run({"exp": _strict(1)}, "--samples", "2") == 0
    assert run({"exp": tally.untested("there was no time for it")}, "--seconds", "0") == 0
    assert "stays as it is: its samples is 2" in capsys.readouterr().err
    assert table_file.partial(path).is_file()
    assert run({"exp": _strict(4)}, "--resume") == 0
    assert tables.continued(path, **_about()) == {"exp": _strict(4)}


def test_a_broken_table_is_named(command: Any, capsys: pytest.CaptureFixture[str]) -> None:
    run, path = command
    for text in ("{", "[]", "{}"):
        path.write_text(text)
        assert run({}, "--resume") == 1
        said = capsys.readouterr().err
        assert f"error: {path} cannot be resumed: it is no table" in said
        assert "remove it, or leave out --resume" in said
    assert run({"exp": _strict(1)}) == 0


def test_what_is_missing_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(implementations, "why_unusable", lambda: "FlagGems needs Triton")

    def version_of(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(entries, "version_of", version_of)
    assert verify_command.main([]) == 1
    assert "error: FlagGems cannot be used: FlagGems needs Triton" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        verify_command.main(["--jobs", "0"])
    assert "0 is less than 1" in capsys.readouterr().err


# ---- tables that the plan reads


VERDICTS: dict[str, dict[str, Any]] = {
    "exp": {"verdict": "STRICT", "cases": 3, "first": "sample 1: empty", "only": ["nonempty"]}
    | {"inside": 2, "outside": 1},
    "sin": {"verdict": "STRICT", "plain": "STRICT", "cases": 3, "first": None},
    "cos": {"verdict": "FAILED", "plain": "FAILED", "cases": 3, "first": "sample 0: wrong"},
    "abs": {"verdict": "BASIC", "cases": 3, "first": "sample 1: strides"},
}
NUMBER = python_kernels.call_class("aten::exp", (torch.empty(0, device="meta"),), {})[0]
SPEED = {
    name: {
        "Float small": {
            "number": f"{NUMBER & (2**64 - 1):x}",
            "calls": {"small": {"host": [ours, 10.0], "device": [2.0, 2.0]}},
        }
    }
    for name, ours in (("exp", 5.0), ("sin", 12.0))
}
SAID = {
    "sin": "measured on A chip and faster than the native kernel in none of 1 classes of calls",
    "cos": "verified to be wrong on A chip: sample 0: wrong",
    "abs": "verified BASIC on A chip: sample 1: strides",
    "neg": "not verified on A chip",
}


OFF = "native kernels serve by default: route it here, or set FLAGOS_FLAGGEMS=auto"


@pytest.mark.parametrize("policy", ["off", "auto"])
def test_the_plan_reads_the_tables_that_ship(tmp_path: Path, policy: str) -> None:
    folder = tmp_path / "verdicts"
    for kind, overloads in (("verdicts", VERDICTS), ("speed", SPEED)):
        name = tables.file_name(kind, "A chip", package.version())
        table_file.write(folder / package.version() / f"{name}.gz", tables.table(overloads))
    # Candidates are registered when torch_fl is imported, so the chip is told before.
    program = (
        "import json, pathlib, sys\n"
        "from flagos.on_import import when_imported\n"
        "def told():\n"
        "    tables = sys.modules['torch_fl.flaggems.tables']\n"
        "    tables.chip = lambda: 'A chip'\n"
        f"    tables.SHIPPED = pathlib.Path({str(tmp_path / 'verdicts')!r})\n"
        "when_imported('torch_fl.flaggems.tables', told)\n"
        "import torch_fl\n"
        "for op in ('exp', 'sin', 'cos', 'abs', 'neg'):\n"
        "    said = torch_fl.explain(op)\n"
        "    print(op, said.data['winner'], str(said).replace(chr(10), ' '))\n"
        "print('json', json.dumps(torch_fl.explain('exp').data['candidates']))\n"
        "import torch\n"
        "assert torch.ones(0, device='flagos').exp().shape == (0,)\n"
        "print('declined', torch_fl.counters().get('aten::exp', {}).get('fallbacks'))\n"
    )
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "home")}
    environment.pop("FLAGOS_FLAGGEMS", None)
    if policy != "off":  # the default
        environment["FLAGOS_FLAGGEMS"] = policy
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    lines = dict(line.split(" ", 1) for line in ran.stdout.splitlines())
    served = {op for op, line in lines.items() if line.startswith("flaggems.")}
    assert served == ({"exp"} if policy == "auto" else set())
    assert policy == "off" or lines["declined"] == "1", "its only condition is not empty"
    for op, said in SAID.items():
        # A wrong result is told first, whatever the policy.
        assert (said if policy == "auto" or op == "cos" else OFF) in lines[op], lines[op]
        assert lines[op].count(said) <= 1, lines[op]
        # A kernel that was found right serves the verified types only.
        assert ("only when tensors, dtypes and numbers are of verified types" in lines[op]) == (
            op in ("sin", "abs")
        )
    # Where kernels serve by themselves it is told which of their configurations do.
    which = ", in the configuration that was verified" if policy == "auto" else ""
    assert f"STRICT on A chip{which}, in 3 cases" in lines["sin"]
    assert "verdict: FAILED" not in lines["cos"]
    # The conditions are told whether or not the kernel serves, with the verdict they rest on.
    of_sizes = " and sizes are of verified classes: argument 0 has " + ", ".join(
        f"0-4095 {kind}" for kind in ("elements", "rows", "columns")
    )
    faster = (
        " and its class is one of the 1 of 1 in which it was measured to be faster (Float small), and its "
        "signature has come often enough to be replayed"
    )
    for said in (
        "and no tensor is without elements"
        + (of_sizes + faster if policy == "auto" else "")
        + "; other calls go to the native kernel",
        f"verdict: STRICT on A chip{which} within these conditions, in 2 cases; wrong outside: sample 1: empty",
    ):
        assert said in lines["exp"], lines["exp"]
    (ours,) = (c for c in json.loads(lines["json"]) if c["backend"] == "flaggems")
    assert [one["name"] for one in ours["only"]] == [
        *("ordinary", "nonempty"),
        *(["sizes", "faster"] if policy == "auto" else []),
    ]
    assert ours["only"][1]["means"] == "no tensor is without elements"
    assert ours["verdict"]["verdict"] == "STRICT" and "sample 1" in ours["verdict"]["found"]


def test_the_table_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "chip", lambda: "A chip")
    tables._table.cache_clear()
    assert verify_command.main(["--show"]) == 1
    assert "no table of A chip" in capsys.readouterr().err
    replays = {"mm": {"verdict": "STRICT", "cases": 2, "first": None, "replayed": 1}}
    replays["mm"]["not_replayed"] = ["it calls aten.mul.Tensor, which is not recorded"]
    name = tables.file_name("verdicts", "A chip", package.version())
    table_file.write(tmp_path / "flagos" / name, tables.table({**VERDICTS, **replays}))
    tables._table.cache_clear()
    monkeypatch.setenv("FLAGOS_FLAGGEMS", "verified")
    assert tables.not_by_default("exp") is None and tables.not_by_default("sin") is None
    assert tables.not_by_default("cos") is not None
    assert verify_command.main(["--show"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "abs: BASIC: sample 1: strides",
        "cos: FAILED: sample 0: wrong",
        "exp: STRICT within nonempty (2 cases); outside: sample 1: empty",
        "mm: not replayed: it calls aten.mul.Tensor, which is not recorded",
        "3 STRICT, 1 BASIC, 1 FAILED, 0 UNTESTED (1 of the STRICT within conditions)",
        "on the database's own samples alone: 1 STRICT, 0 BASIC, 1 FAILED, 0 UNTESTED",
        "replayed: 0 always, 1 for some arguments, 0 never",
    ]
    tables._table.cache_clear()


def test_what_is_known_of_the_h200_ships() -> None:
    """The tables that a process on that chip reads, with the version of FlagGems that was verified."""
    program = (
        "import sys\n"
        "from flagos.on_import import when_imported\n"
        "def told():\n"
        "    sys.modules['torch_fl.flaggems.tables'].chip = lambda: 'NVIDIA H200'\n"
        "    sys.modules['torch_fl.flaggems.package'].version = lambda: '5.0.2'\n"
        "when_imported('torch_fl.flaggems.tables', told)\n"
        "import torch_fl\n"
        "from torch_fl.flaggems import tables\n"
        "print(len(tables.verdicts()), len(tables.speed()))\n"
        "for op in ('angle', 'exp', 'mul.Tensor'):\n"
        "    said = torch_fl.explain(op)\n"
        "    print(op, said.data['winner'], str(said).replace(chr(10), ' '))\n"
        "print(*torch_fl.enable_flaggems())\n"
    )
    with tempfile.TemporaryDirectory() as home:
        environment = {**os.environ, "XDG_DATA_HOME": home}
        environment.pop("FLAGOS_FLAGGEMS", None)
        command = [sys.executable, "-c", program]
        ran = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    counts, angle, exp, mul, enabled = ran.stdout.splitlines()
    verdicts, speed = map(int, counts.split())
    assert verdicts > 400 and speed >= 18
    for op, line in (("angle", angle), ("mul.Tensor", mul)):
        assert line.startswith(f"{op} cpu.native") and "wrong on NVIDIA H200" in line, line
    assert exp.startswith("exp cpu.native") and OFF in exp
    assert "exp" in enabled.split() and "angle" not in enabled.split()
    assert "mm" in enabled.split(), "that its tuning took long made it no wrong kernel"


def test_tables_that_ship_are_named_and_made_as_told() -> None:
    shipped = sorted(tables.SHIPPED.glob("*/*.json.gz"))
    assert shipped
    for path in shipped:
        made = json.loads(gzip.decompress(path.read_bytes()))
        kind = path.name.partition(".")[0]
        assert path == tables.shipped(kind, made["chip"], made["flaggems"])
        for name, entry in made["overloads"].items():
            if kind == "verdicts":
                assert entry["verdict"] in (*comparison.ORDER, comparison.UNTESTED), name
                assert set(entry.get("only", ())) <= set(envelope.CONDITIONS), name
                assert entry["first"] or entry["verdict"] == STRICT, name
            else:
                calls = [call for group in entry.values() for call in group["calls"].values()]
                assert calls, name
                assert all(time > 0 for call in calls for time in call["host"] + call["device"])
