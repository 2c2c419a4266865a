"""`flagos verify` as a whole, which forks and so needs a process that has used no device.

python -m adapters.torch-tools.tests.flaggems.whole
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.metadata
import io
import json
import os
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from torch_fl.flaggems import implementations, package, table_file
from torch_fl.flaggems.table_file import FAILED, STRICT, UNTESTED
from torch_fl_tools.flaggems import cases, measured_calls, running
from torch_fl_tools.flaggems.verify import command as verify_command
from torch_fl_tools.flaggems.verify import entries
from torch_fl_tools.flaggems.verify import run as verify_run

from .database import DATABASE

WHERE = {
    "silu": [("nn.functional.silu", "function"), ("nn.functional.silu", "gradient")],
    "silu_backward": [("nn.functional.silu", "gradient")],
    "mul.Tensor": [("mul", "function")],
    "exp": [("exp", "function"), ("exp", "out")],
    "neg": [("neg", "function")],
    "abs": [("abs", "function")],
}
"""Entries of the database for some overloads."""

Told = list[tuple[int, int, str]]


def run(report: Told, jobs: int = 2, **options: Any) -> dict[str, dict[str, Any]]:
    return verify_run.verify(
        "*", jobs, 1, lambda done, total, name, _: report.append((done, total, name)), **options
    )


def operators_are_found_by_their_calls() -> None:
    wanted = {"exp", "silu", "silu_backward", "exp.out", "mul.Tensor", "std.correction"}
    wanted |= {"silu_", "mul.Scalar"}
    for jobs in (1, 2):
        found, lost = cases.calling(wanted, jobs)
        assert not lost
        assert [form for entry, form in found["exp"] if entry == "exp"] == [
            "function",
            "out",
            "gradient",
        ], found
        assert found["silu_backward"] == [("nn.functional.silu", "gradient")], found
        assert ("exp", "gradient") in found["mul.Tensor"], found
        assert "std.correction" not in found
        # An overload that no sample calls is called itself.
        for overload, entry in (("silu_", "nn.functional.silu"), ("mul.Scalar", "mul")):
            assert found[overload] == [(entry, overload)], found


def what_looks_for_samples_may_die_and_take_long() -> None:
    forms = cases._forms

    def dies(op: Any) -> Any:
        if op.name == "neg":
            os.kill(os.getpid(), signal.SIGKILL)
        if op.name == "abs":
            time.sleep(600)
        return forms(op)

    with mock.patch.object(cases, "_forms", dies), mock.patch.object(cases, "_ENTRY_SECONDS", 5.0):
        found, lost = cases.calling({"exp", "neg", "mul.Tensor"}, 5)
        assert {one.step: one.failure for one in lost} == {
            "neg": "the process ended with SIGKILL",
            "abs": "it took longer than 5 s",
        }, lost
        assert "exp" in found and "mul.Tensor" in found and "neg" not in found
        found, lost = cases.calling({"exp"}, 1, seconds=-1)
        assert not found and lost[0].over
        with mock.patch.object(package, "load_before_forking"):
            verdicts = verify_run.verify("[en]*", 5, 1, seconds=3)
    assert verdicts["exp"]["first"] == "there was no time for it", verdicts["exp"]


def kernels_that_crash_and_hang() -> None:
    silu = (package._functions or {})["silu"]
    folder = tempfile.TemporaryDirectory()
    tuned = Path(folder.name) / "tuned"

    def tunes(x: torch.Tensor) -> torch.Tensor:
        """Late once, as tuning is beside others."""
        if not tuned.exists():
            tuned.touch()
            time.sleep(600)
        return silu(x)

    functions = {
        **(package._functions or {}),
        "silu": tunes,
        "neg": lambda x: os.kill(os.getpid(), signal.SIGSEGV),
        "abs": lambda x: time.sleep(600),
    }
    report: Told = []
    kept: list[Any] = []
    known = {
        "exp": {"verdict": "STRICT", "cases": 9, "first": None},
        "mul.Tensor": {"verdict": "UNTESTED", "cases": 1, "first": "late", "not_reached": 1},
    }
    with (
        folder,
        mock.patch.object(package, "_functions", functions),
        mock.patch.object(verify_run, "_CASE_SECONDS", 12.0),
        mock.patch.object(verify_run, "_ALONE_SECONDS", 6.0),
        mock.patch.object(verify_run, "_KEEP_EVERY", 0.0),
    ):
        verdicts = run(report, known=known, on_progress=lambda made: kept.append(dict(made)))
    assert set(verdicts) == set(implementations.registered()), "every overload has a verdict"
    for name, why in (
        ("neg", "SIGSEGV in FlagGems' run of neg (function) float32, sample 0"),
        ("abs", "longer than 6 s in FlagGems' run of abs (function)"),  # by itself
    ):
        assert verdicts[name]["verdict"] == FAILED, verdicts[name]
        assert why in verdicts[name]["first"], verdicts[name]
    for name in ("mul.Tensor", "silu", "silu_backward"):
        assert verdicts[name]["verdict"] == STRICT, verdicts[name]
    assert verdicts["exp"]["cases"] == 9, "what is known is not done again"
    assert verdicts["isclose"]["first"] == "it is never routed"
    assert verdicts["atan"]["first"] == "no sample calls it"
    assert [done for done, _, _ in report] == [1, 2, 3, 4, 5]
    assert len(kept) == 7 and set(kept[0]) == set(verdicts), "it is kept while it runs"


def what_the_native_kernel_loses_is_left_out() -> None:
    def loses(name: str, *given: Any) -> dict[str, Any]:
        losses = given[-1]
        found = {"verdict": STRICT, "plain": STRICT, "cases": 1, "first": None}
        suspect = next((loss for loss in losses if not loss.sure), None)
        if suspect is not None and name != "silu_backward":  # by itself, too
            return {**found, "loss": dataclasses.replace(suspect, sure=True)}
        if name in ("neg", "silu_backward") or (name == "exp" and not losses):
            case = "a sample" if name == "silu_backward" else f"sample {len(losses)}"
            found["loss"] = running.Loss(case, True, "it is lost", frozenset())
        if name in ("abs", "silu") and not losses:
            given[3](f"{running.BY_NATIVE}a sample", found)
            if name == "silu":
                os.kill(os.getpid(), signal.SIGSEGV)
            time.sleep(600)
        return {**found, "left_out": [loss.case for loss in losses]}

    report: Told = []
    with (
        mock.patch.object(verify_run, "check", loses),
        mock.patch.object(verify_run, "_CASE_SECONDS", 12.0),
    ):
        verdicts = run(report)
    for name, case in (("exp", "sample 0"), ("abs", "a sample"), ("silu", "a sample")):
        assert verdicts[name]["verdict"] == STRICT, verdicts[name]
        assert verdicts[name]["left_out"] == [case], verdicts[name]
    assert verdicts["silu_backward"]["verdict"] == FAILED
    assert "a sample: it is lost, but not before FlagGems" in verdicts["silu_backward"]["first"]
    assert verdicts["neg"]["verdict"] == UNTESTED, verdicts["neg"]
    last = f"sample {verify_run._LOSSES - 1}"
    assert verdicts["neg"]["first"] == f"the native kernel lost the device in {last}"
    assert "loss" not in verdicts["neg"], "it is no part of a table"
    # A verdict whose second run was interrupted is not final.
    seen: list[bool] = []
    with (
        mock.patch.object(verify_run, "check", loses),
        mock.patch.object(verify_run, "_KEEP_EVERY", 0.0),
    ):

        def kept(made: dict[str, Any]) -> None:
            seen.append(any("again" in entry for entry in made.values()))

        before = run([], stop=lambda: any(seen), on_progress=kept)
        assert any(entries.is_cut(before[name]) for name in ("exp", "neg")), before
        after = run([], known=before)
    assert after["exp"]["verdict"] == STRICT and after["exp"]["left_out"] == ["sample 0"]
    assert not any("again" in entry for entry in after.values())
    assert [done for done, _, _ in report] == list(range(1, len(WHERE) + 1))


def what_flaggems_loses_is_wrong_whatever_comes_after() -> None:
    """The next process may find conditions; where there is no time for it, or it fails, what was found stays."""

    def loses(name: str, *given: Any) -> dict[str, Any]:
        losses = given[-1]
        found = {"verdict": STRICT, "plain": STRICT, "cases": 1, "first": None}
        if name not in ("exp", "neg", "abs", "silu"):
            return found
        if not losses or name == "silu":
            loss = running.Loss(f"sample {len(losses)}", False, "illegal", frozenset(["nonempty"]))
            return {**found, "verdict": FAILED, "first": "sample 0: illegal", "loss": loss}
        assert [loss.case for loss in losses] == ["sample 0"]
        if name == "neg":
            time.sleep(600)
        if name == "abs":
            raise ValueError("of the check")
        return {**found, "only": ["nonempty"]}

    report: Told = []
    with mock.patch.object(verify_run, "check", loses):
        verdicts = run(report, 6, seconds=40)
    assert verdicts["exp"]["only"] == ["nonempty"], verdicts["exp"]
    for name in ("neg", "abs", "silu"):
        assert verdicts[name]["verdict"] == FAILED, verdicts[name]
        assert verdicts[name]["first"] == "sample 0: illegal" and "loss" not in verdicts[name]
    assert [name for _, _, name in report].count("silu") == 1, "it is given up"


def what_found_no_memory_beside_others_runs_again_without() -> None:
    exp = (package._functions or {})["exp"]
    with tempfile.TemporaryDirectory() as folder:

        def once(x: torch.Tensor) -> torch.Tensor:
            report = Path(folder) / "told"
            if not report.exists():
                report.touch()
                raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 1.00 GiB")
            return exp(x)

        def never(x: torch.Tensor) -> torch.Tensor:
            raise RuntimeError("CUDA error: out of memory")

        functions = {**(package._functions or {}), "exp": once, "neg": never}
        report: Told = []
        with mock.patch.object(package, "_functions", functions):
            verdicts = run(report)
    assert verdicts["exp"]["verdict"] == STRICT, verdicts["exp"]
    assert verdicts["neg"]["verdict"] == UNTESTED, verdicts["neg"]
    assert verdicts["neg"]["first"].startswith("there was no memory for"), verdicts["neg"]
    assert entries.is_cut(verdicts["neg"]), "it is tried again by --resume"
    assert not any({"short", "again"} & entry.keys() for entry in verdicts.values())
    assert {name for _, _, name in report[-2:]} == {"exp", "neg"}, "after those that found memory"


def what_was_cut_runs_again_for_longer() -> None:
    """Once all were reached; what less time had found stands until the longer run has ended."""

    def cut(name: str, *given: Any) -> dict[str, Any]:
        each: float = given[2]
        if name == "neg" and each > 2:
            time.sleep(600)
        needs = {"exp": 1.0, "abs": 5.0, "neg": 9.0}.get(name, 0.0)
        found = {"verdict": STRICT, "cases": int(each), "first": None}
        return {**found, "not_reached": int(each < needs)}

    def made(**options: Any) -> tuple[list[str], dict[str, dict[str, Any]]]:
        report: Told = []
        with mock.patch.object(verify_run, "check", cut):
            verdicts = run(report, 6, each=2.0, **options)
        return [name for _, _, name in report], verdicts

    names, verdicts = made(seconds=14)
    assert len(set(names[: len(WHERE)])) == len(WHERE) and names[len(WHERE) :] == ["abs", "neg"]
    assert (verdicts["exp"]["cases"], verdicts["abs"]["cases"]) == (2, 8)
    assert verdicts["neg"]["cases"] == 2 and entries.is_cut(verdicts["neg"]), verdicts["neg"]
    names, verdicts = made()
    assert len(names) == len(WHERE) and verdicts["abs"]["cases"] == 2, "without end it is as asked"


def what_serves_by_default_comes_first() -> None:
    report: Told = []
    found = {"verdict": STRICT, "cases": 1, "first": None}
    with (
        mock.patch.object(measured_calls, "measured", return_value={"neg", "silu"}),
        mock.patch.object(verify_run, "check", return_value=found),
    ):
        run(report, 1)
    assert [name for _, _, name in report][:2] == ["neg", "silu"] and len(report) == len(WHERE)


def time_ends() -> None:
    report: Told = []
    verdicts = run(report, seconds=0)
    assert {verdicts[name]["first"] for name in WHERE} == {"there was no time for it"}
    assert not report


def command(*arguments: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = verify_command.main([*arguments, "--jobs", "2", "--samples", "1", "--no-records"])
    return code, out.getvalue(), err.getvalue()


def a_table_is_kept_and_resumed() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.json"
        asked = ["--out", str(path), "--ops", "[en]*"]
        code, out, _ = command(*asked, "--seconds", "0")
        assert code == 0 and out.startswith("0 STRICT"), out
        table = json.loads(path.read_text())
        assert table["overloads"]["exp"]["first"] == "there was no time for it"
        code, out, err = command(*asked, "--resume", "--json")
        assert code == 0 and json.loads(out) == json.loads(path.read_text())
        assert json.loads(out)["overloads"]["exp"]["verdict"] == "STRICT"
        assert "] exp: STRICT" in err, err
        path.write_text(json.dumps({**table, "torch": "1.0"}))
        code, _, err = command(*asked, "--resume")
        assert code == 1 and "its torch is '1.0'" in err, err


def an_interrupt_keeps_what_there_is() -> None:
    """SIGTERM, twice, as `timeout` ends a command."""
    parent = os.getpid()

    def interrupts(name: str, *_: Any) -> None:
        time.sleep(1)  # while the parent forks, Python drops what a handler raises
        if name == "exp":
            os.kill(parent, signal.SIGTERM)
            time.sleep(0.1)
            os.kill(parent, signal.SIGTERM)
        time.sleep(20)

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.json"
        with mock.patch.object(verify_run, "check", interrupts):
            code, out, err = command("--out", str(path))
        assert code == 0 and str(table_file.partial(path)) in err and "UNTESTED" in out
        made = json.loads(table_file.partial(path).read_text())
        assert len(made["overloads"]) == len(implementations.registered()) and not path.exists()


CHECKS: list[Callable[[], None]] = [
    kernels_that_crash_and_hang,
    what_the_native_kernel_loses_is_left_out,
    what_flaggems_loses_is_wrong_whatever_comes_after,
    what_found_no_memory_beside_others_runs_again_without,
    what_was_cut_runs_again_for_longer,
    what_serves_by_default_comes_first,
    time_ends,
    a_table_is_kept_and_resumed,
    an_interrupt_keeps_what_there_is,
]


def _known(wanted: set[str], jobs: int, **_: Any) -> tuple[dict[str, cases.Where], list[Any]]:
    return {name: where for name, where in WHERE.items() if name in wanted}, []


def main() -> None:
    torch.set_num_threads(1)
    package.load_before_forking()
    package_version = importlib.metadata.version("flag_gems")
    assert package.version() == package_version, "a table made now can be resumed"
    with mock.patch.object(cases, "database", return_value=DATABASE):
        operators_are_found_by_their_calls()
        what_looks_for_samples_may_die_and_take_long()
        with mock.patch.object(cases, "calling", _known):
            for one in CHECKS:
                one()
                print("passed:", one.__name__.replace("_", " "))
    print(f"{len(CHECKS)} passed")


if __name__ == "__main__":
    main()
