"""What CI has no time for of `flagos bisect`: several causes, programs that hang, vary or were ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import torch_fl  # noqa: F401  gives torch.flagos

from .command import FEW, PROGRAM, SECONDS, Bisect, operators, repro

pytestmark = pytest.mark.host


def test_two_that_are_wrong_only_together_are_found_in_thirty_runs(bisect: Bisect) -> None:
    report = bisect("--compare", "native", status=0, WRONG="cos special_i1", HOW="both")
    assert report["operators"] >= 100
    assert operators(report) == [["cos", "special_i1"]]
    assert report["runs"] <= 30, report["runs"]


def test_two_of_which_either_is_wrong_are_found_in_thirty_runs(bisect: Bisect) -> None:
    report = bisect("--compare", "native", status=0, WRONG="cos special_i1")
    assert report["operators"] >= 100
    assert operators(report) == [["cos"], ["special_i1"]]
    assert report["runs"] <= 30, report["runs"]
    assert [cause["call"]["op"] for cause in report["causes"]] == ["aten::cos", "aten::special_i1"]


def test_the_status_is_a_check_of_its_own(bisect: Bisect) -> None:
    native = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PLANTED": FEW, "FLAGOS_VENDOR": "host"},
        capture_output=True,
        text=True,
        check=True,
    )
    expected = native.stdout.split()[-1]
    report = bisect(status=0, WRONG="mm", PLANTED=FEW, EXPECTED=expected)
    assert operators(report) == [["mm"]]
    assert report["causes"][0]["outcome"]["detail"] == "status 3 (the total is wrong)"
    assert report["causes"][0]["call"]["kind"] == "differs"


@pytest.mark.parametrize(
    ("how", "kind", "detail"),
    [
        ("crash", "crashed", "ended by SIGSEGV"),
        ("raise", "raised", "RuntimeError: no such configuration"),
        ("lost", "crashed", "RuntimeError: an illegal memory access was encountered"),
        ("hang", "crashed", "did not end in"),
    ],
)
def test_a_call_that_does_not_end_is_kept_before_it_begins(
    bisect: Bisect, how: str, kind: str, detail: str
) -> None:
    # A run that ends took 13 s on a quarter of a core.
    options = ("--timeout", "30") if how == "hang" else ()
    planted = "exp native_layer_norm" if how == "crash" else "native_layer_norm"
    report = bisect(*options, status=0, WRONG="native_layer_norm", HOW=how, PLANTED=planted)
    assert operators(report) == [["native_layer_norm"]]
    assert detail in report["causes"][0]["outcome"]["detail"]
    call = report["causes"][0]["call"]
    assert (call["kind"], call["op"]) == (kind, "aten::native_layer_norm")
    assert call["arguments"] == ["float32[6, 6]", "[6]", "None", "None", "1e-05"]
    variables = {"WRONG": "native_layer_norm", "PLANTED": planted}
    assert repro(report, bisect, HOW=how, **variables).returncode == 1
    assert repro(report, bisect, HOW=how, PLANTED=planted, WRONG="").returncode == 0


def test_nothing_more_is_run_where_native_kernels_fail(bisect: Bisect) -> None:
    report = bisect(status=1, PLANTED=FEW, EXPECTED="0")
    assert (report["verdict"], report["runs"]) == ("native fails", 1)
    assert "no route is to blame" in report["message"]


def test_an_outcome_that_varies_is_noticed(bisect: Bisect) -> None:
    runs = str(bisect.folder / "count")
    report = bisect("--state", "once", status=1, PLANTED=FEW, RUNS=runs)
    assert report["verdict"] == "not reproducible"
    # With two runs of each set, one of which fails if any of its kernels is called, there is a set.
    report = bisect("--repeat", "2", status=0, PLANTED="exp", RUNS=runs)
    assert operators(report) == [["exp"]]


def test_native_runs_that_differ_are_noticed(bisect: Bisect) -> None:
    script = bisect.folder / "varies.py"
    script.write_text(
        "import os, torch\ntorch.ones(1, device='flagos')\n"
        "torch.flagos.mark('loss', torch.tensor(float(os.getpid())))\n"
    )
    report = bisect("--compare", "native", status=1, program=[sys.executable, str(script)])
    assert (report["verdict"], report["runs"]) == ("not reproducible", 2)
    assert "two runs with every operator routed to native differ" in report["message"]


def test_seeds_are_fixed(bisect: Bisect) -> None:
    script = bisect.folder / "draws.py"
    script.write_text(
        "import random, torch\nfrom torch import tensor\n"
        "x = torch.rand(3, device='flagos').sum().cpu() + torch.rand(1) + random.random()\n"
        "torch.flagos.mark('x', x + len({hash('a')}) + hash('a') % 1000)\n"
    )
    report = bisect("--compare", "native", status=1, program=[sys.executable, str(script)])
    assert (report["verdict"], report["runs"]) == ("passes", 3)


def until(true: Callable[[], bool]) -> None:
    """Waits for something that another process does."""
    end = time.monotonic() + SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def runs_in(state: Path) -> int:
    """How many runs have ended."""
    path = state / "search.json"
    return len(json.loads(path.read_text())["runs"]) if path.exists() else 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_search_goes_on_after_it_was_ended(bisect: Bisect, number: signal.Signals) -> None:
    state = bisect.folder / "state"
    wrong = {"WRONG": "mm", "PLANTED": FEW}
    options = ("--compare", "native", "--state", "state")
    process = bisect.start(*options, **wrong)
    until(lambda: runs_in(state) >= 2)
    child: list[psutil.Process] = []
    until(lambda: bool(child.extend(psutil.Process(process.pid).children()) or child))
    process.send_signal(number)
    _, err = process.communicate(timeout=SECONDS)
    assert process.returncode == (-number if number == signal.SIGKILL else 130), err
    until(lambda: not child[0].is_running() or child[0].status() == psutil.STATUS_ZOMBIE)
    before = runs_in(state)
    report = bisect(*options, status=0, **wrong)
    assert operators(report) == [["mm"]]
    again = [line for line in report["progress"] if "(before)" in line]
    assert len(again) == before >= 2
    # All of it is known now.
    report = bisect(*options, status=0, **wrong)
    runs = [line for line in report["progress"] if line.startswith("run ")]
    assert all("(before)" in line for line in runs) and len(runs) == report["runs"]


def test_a_state_of_another_search_is_refused(bisect: Bisect) -> None:
    script = bisect.folder / "program.py"
    script.write_text(PROGRAM.read_text())
    program = [sys.executable, "program.py"]

    def refused(*options: str, **variables: str) -> str:
        report = bisect("--state", "state", *options, status=1, program=program, **variables)
        assert "--state" in report["hint"]
        return str(report["error"])

    bisect("--state", "state", status=1, program=program, PLANTED="exp")  # passes
    assert "its check had nan=False, and here it is True" in refused("--nan", PLANTED="exp")
    assert "FLAGOS_OP_mm" in refused(PLANTED="exp", FLAGOS_OP_mm="cpu")
    script.write_text(script.read_text() + "\n")
    assert "program.py was changed since" in refused(PLANTED="exp")
    (bisect.folder / "state" / "search.json").write_text("{")
    assert "is broken" in refused(PLANTED="exp")
    (bisect.folder / "other").mkdir()
    (bisect.folder / "other" / "file").touch()
    report = bisect("--state", "other", status=1, program=program)
    assert "no state of `flagos bisect`" in report["error"]


def test_routes_of_the_program_are_beaten(bisect: Bisect) -> None:
    """A kernel that a program routes by a call, and one that it routes for a region, are routed to native as well."""
    script = bisect.folder / "routes.py"
    script.write_text(
        "import torch, flagos\n"
        "@flagos.implementation('aten::exp', on_request='asked')\n"
        "def exp(x): return torch.exp(x) + 1\n"
        "@flagos.implementation('aten::tan', on_request='asked')\n"
        "def tan(x): return torch.tan(x) + 0\n"
        "@flagos.implementation('aten::linear')\n"
        "def linear(x, w, b=None): return torch.mm(x, w.t())\n"
        "flagos.set_route('aten::tan', 'flagos')\n"
        "x = torch.ones(2, 2, device='flagos')\n"
        "with flagos.route({'aten::exp': 'flagos'}):\n"
        "    y = torch.exp(torch.tan(torch.nn.functional.linear(x, x)))\n"
        "torch.flagos.mark('y', y)\n"
    )
    report = bisect("--compare", "native", status=0, program=[sys.executable, str(script)])
    assert report["operators"] == 3
    assert operators(report) == [["exp"]]
    assert report["causes"][0]["call"]["repro_status"] == 1


def test_a_composite_kernel_gives_way_to_its_parts(bisect: Bisect) -> None:
    script = bisect.folder / "composite.py"
    script.write_text(
        "import torch, flagos\n"
        "@flagos.implementation('aten::linear')\n"
        "def linear(x, w, b=None): return torch.mm(x, w.t()) * 2\n"
        "x = torch.ones(2, 2, device='flagos')\n"
        "torch.flagos.mark('y', torch.nn.functional.linear(x, x))\n"
    )
    report = bisect("--compare", "native", status=0, program=[sys.executable, str(script)])
    assert operators(report) == [["linear"]]
    assert report["causes"][0]["call"]["repro_status"] == 1


def test_a_call_of_a_backward_pass_has_its_place_in_the_forward_pass(bisect: Bisect) -> None:
    script = bisect.folder / "backward.py"
    script.write_text(
        "import torch, flagos\n"
        "@flagos.implementation('aten::tanh_backward')\n"
        "def tanh_backward(grad, output): return grad * (1 - output)\n"
        "x = torch.full((2, 3), 0.5, device='flagos', requires_grad=True)\n"
        "y = torch.tanh(x.t())\n"
        "y.sum().backward()\n"
        "torch.flagos.mark('gradient', x.grad)\n"
    )
    program = [sys.executable, str(script)]
    report = bisect("--compare", "native", status=0, program=program)
    assert operators(report) == [["tanh_backward"]]
    call = report["causes"][0]["call"]
    assert call["gradient_of"] == "TanhBackward0"
    assert any(
        line.endswith("backward.py:5 in <module>: y = torch.tanh(x.t())")
        for line in call["forward_stack"]
    )
    assert call["repro_status"] == 1


def test_kernels_of_the_vendor_are_searched_beside_the_cpu(bisect: Bisect, chip: Path) -> None:
    """On the example chip: its kernels differ from the CPU's by more than nothing, and are C."""
    script = bisect.folder / "vendor.py"
    script.write_text(
        "import torch\n"
        "torch.manual_seed(0)\n"
        "x = torch.rand(64, 64).to('flagos')\n"
        "y = torch.exp(torch.mm(x, x) / 64) + x\n"
        "torch.flagos.mark('y', y)\n"
    )
    variables = {"FLAGOS_VENDOR": "example", "FLAGOS_VENDOR_PATH": str(chip)}
    options = ("--compare", "cpu", "--rtol", "0", "--atol", "0")
    report = bisect(*options, status=0, program=[sys.executable, str(script)], **variables)
    assert report["operators"] >= 2
    assert operators(report) == [["mm"]]
    call = report["causes"][0]["call"]
    # The kernel is right, and adds in another order.
    assert (call["kind"], call["impl"]) == ("rounding", "example.native")
    assert call["repro_status"] == 0
    assert 0 < max(one["max_abs"] for one in call["differences"]) < 1e-4


def test_operators_that_draw_random_numbers_stay_native(bisect: Bisect) -> None:
    script = bisect.folder / "draws.py"
    script.write_text(
        "import torch, flagos\n"
        "@flagos.implementation('aten::normal_')\n"
        "def normal_(x, mean=0, std=1, *, generator=None): return x.fill_(0.5)\n"
        "torch.flagos.mark('y', torch.empty(3, device='flagos').normal_())\n"
    )
    program = [sys.executable, str(script)]
    report = bisect("--compare", "native", status=1, program=program)
    assert report["verdict"] == "not searched"
    assert "normal_" in report["message"]
    report = bisect("--compare", "native", "--random", status=0, program=program)
    assert operators(report) == [["normal_"]]
