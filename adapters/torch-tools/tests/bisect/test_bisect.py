"""`flagos bisect` over a program with kernels that are wrong on purpose; `long_bisect.py` has more."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torch_fl  # noqa: F401  gives torch.flagos
from flagos.cli.output import CommandError
from torch_fl_tools.bisect.state import State, fingerprint

from .command import FEW, PROGRAM, SECONDS, Bisect, operators, repro

pytestmark = pytest.mark.host


@pytest.mark.slow
def test_one_wrong_kernel_among_all_is_found_in_twelve_runs(bisect: Bisect) -> None:
    report = bisect("--compare", "native", status=0, WRONG="sinc")
    assert report["operators"] >= 100
    assert operators(report) == [["sinc"]]
    assert report["runs"] <= 12, report["runs"]
    call = report["causes"][0]["call"]
    assert (call["kind"], call["op"], call["call"]) == ("differs", "aten::sinc", 0)
    assert call["arguments"] == ["float32[6, 6]"]
    (found,) = [one for one in call["differences"] if one["differs"]]
    assert found["max_abs"] == pytest.approx(3.0)
    assert (found["at"], found["beyond"], found["nan"]) == ([0, 1], 1, 0)
    assert any("program.py" in line and "in calls" in line for line in call["stack"])
    # The file shows the difference by itself, and none where the kernel is right.
    shown = repro(report, bisect, WRONG="sinc")
    assert shown.returncode == call["repro_status"] == 1, shown
    assert "max |Δ| 3 at [0, 1]" in shown.stdout
    assert repro(report, bisect, WRONG="").returncode == 0


@pytest.mark.slow
def test_nan_needs_no_reference(bisect: Bisect) -> None:
    report = bisect("--nan", status=0, WRONG="tanh", HOW="nan", PLANTED=FEW)
    assert operators(report) == [["tanh"]]
    assert report["causes"][0]["outcome"]["kind"] == "nan"
    (found,) = [one for one in report["causes"][0]["call"]["differences"] if one["differs"]]
    assert (found["nan_expected"], found["nan"]) == (0, 1)


@pytest.mark.slow
def test_nothing_is_run_where_nothing_is_wrong(bisect: Bisect) -> None:
    report = bisect("--compare", "native", status=1, PLANTED=FEW)
    assert (report["verdict"], report["runs"]) == ("passes", 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "program", "says"),
    [
        (["--nan"], "import torch; torch.ones(1, device='flagos')", "it marked nothing"),
        (["--compare", "cuda"], "import torch; torch.ones(1, device='flagos')", "backend 'cuda'"),
        ([], "print('hello')", "never loaded flagos"),
        (["--rtol", "1"], "", "tolerances of a comparison"),
    ],
)
def test_what_cannot_be_searched_is_said(
    bisect: Bisect, options: list[str], program: str, says: str
) -> None:
    report = bisect(*options, status=1, program=[sys.executable, "-c", program])
    assert says in report["error"]
    assert report["hint"]


def test_a_program_that_is_not_there_is_named(bisect: Bisect) -> None:
    assert "no-such-program" in bisect(status=1, program=["no-such-program"])["error"]
    assert "no program is named" in bisect(status=1, program=[])["error"]


@pytest.mark.slow
def test_the_report_tells_what_to_do(bisect: Bisect) -> None:
    process = bisect.start("--compare", "native", PLANTED=FEW, WRONG="add.Tensor")
    out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, err
    assert "1 of 4 operators makes the difference" in out
    assert "1. aten::add.Tensor by planted.add.Tensor" in out
    assert "without: FLAGOS_OP_add__Tensor=vendor" in out
    assert "first call that differs: call 0 of aten::add.Tensor" in out
    assert re.search(r"run 5: .*; about \d+ more, (\d+ min )?\d+ s", err)
    # And that it is true.
    environment = {**os.environ, "FLAGOS_VENDOR": "host", "PLANTED": FEW, "WRONG": "add.Tensor"}
    totals = [
        subprocess.run(
            [sys.executable, str(PROGRAM)],
            env={**environment, **more},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for more in ({}, {"FLAGOS_OP_add__Tensor": "vendor"}, {"WRONG": ""})
    ]
    assert totals[0] != totals[1] == totals[2]


def test_a_mark_does_nothing_without_a_search() -> None:
    torch.flagos.mark("loss", object())  # type: ignore[attr-defined]


def test_the_variable_names_a_run_or_is_an_error(bisect: Bisect) -> None:
    environment = {**os.environ, "FLAGOS_VENDOR": "host", "FLAGOS_BISECT": "/no/such/file"}
    ended = subprocess.run(
        [sys.executable, "-c", "import torch_fl"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode != 0
    assert "FLAGOS_BISECT=/no/such/file names no run of `flagos bisect`" in ended.stderr


@pytest.mark.slow
def test_a_search_that_ran_out_of_runs_goes_on_with_more(bisect: Bisect) -> None:
    program = [sys.executable, "-c", f"{PROGRAM.read_text()}\n# {'long' * 100}"]
    options = ("--compare", "native", "--state", "state \udcff")
    report = bisect(
        *options, "--max-runs", "3", status=1, program=program, PLANTED="exp mm", WRONG="mm"
    )
    assert report["verdict"] == "too many runs" and "continues from here" in report["message"]
    report = bisect(*options, status=0, program=program, PLANTED="exp mm", WRONG="mm")
    assert operators(report) == [["mm"]]
    assert sum("(before)" in line for line in report["progress"]) == 3


def test_words_that_are_no_files_are_words(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("pass")
    command = ["python", "x" * 300, "a\0b", "\udcff", str(tmp_path), str(program)]
    about = fingerprint(command, {}, {"plan": "", "versions": {}})
    assert list(about["contents of files"]) == [str(program)]


RUN = {"key": "a", "folder": ".", "outcome": {"kind": "ok", "detail": ""}, "seconds": 1.0}


@pytest.mark.parametrize(
    ("about", "runs", "said"),
    [
        ({}, [1, 2], "entry 1 of `runs` is no run"),
        ({}, [RUN, {"key": "b"}], "entry 2 of `runs` is no run"),
        ({}, [{**RUN, "outcome": {"what": 1}}], "entry 1 of `runs` is no run"),
        ({}, {}, "`runs` is no list"),
        ([], [], "`about` is no object"),
    ],
)
def test_a_broken_state_is_refused(tmp_path: Path, about: object, runs: object, said: str) -> None:
    text = json.dumps({"format": 1, "about": about, "runs": runs})
    (tmp_path / "search.json").write_text(text)
    with pytest.raises(CommandError, match=said) as report, State(tmp_path, {}).opened():
        pass
    assert "is broken" in str(report.value) and "--state" in str(report.value.hint)
    (tmp_path / "search.json").write_text(json.dumps({"format": 1, "about": {}, "runs": [RUN]}))
    state = State(tmp_path, {})
    with state.opened():
        assert [run.as_dict() for run in state.runs] == [RUN]
