"""`flagos tune`: what is measured, in which order, what is kept, and what `auto` makes of it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from torch_fl import python_kernels
from torch_fl.flaggems import implementations, package, table_file, tables
from torch_fl.flaggems.table_file import Speed, Times
from torch_fl_tools.flaggems import measured_calls, tune
from torch_fl_tools.records import facts

FASTER = Times(host=[5.0, 10.0], device=[2.0, 2.0])


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_calls, "_SIZES", {"tiny": 4, "small": 4, "large": 8})


def speed(times: Times = FASTER, words: str = "Float small") -> Speed:
    return {words: {"number": "1f", "calls": {"small": times}}}


def recorded(op: str, *shape: int, count: int = 1) -> facts.Call:
    tensor = facts.TensorFacts(torch.float32, shape, facts.contiguous(shape))
    return facts.Call(f"aten::{op}", (tensor,), {}, count)


def test_times_are_measured_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers mean nothing here; that every class has them, and none is lost, does."""
    verdicts = {"neg": {"verdict": "STRICT"}, "cos": {"verdict": "FAILED", "first": "wrong"}}
    monkeypatch.setattr(tables, "verdicts", lambda: verdicts)
    report: list[str] = []
    kept: list[set[str]] = []
    measured = tune.measure(
        "[cen][eox][gsp]",
        1,
        lambda name, row: report.append(f"{name} {row.what}"),
        known={"exp": speed()},
        on_progress=lambda found: kept.append(set(found)),
        recorded=[recorded("neg", 3), recorded("neg", 7, count=2), recorded("exp", 3), recorded("cos", 3)],
    )  # fmt: skip
    assert report == [
        "neg [Float small] neg(float32[7])",  # the most frequent
        "neg [Float small] neg(float32[3])",  # the smallest
        "neg [Float small] small",
        "neg [Float small] large",
    ]
    assert measured["exp"] == speed(), "what is known is not measured, nor what is wrong"
    assert set(measured) == {"exp", "neg"} and kept == [{"exp", "neg"}]
    assert set(measured["neg"]) == {"Float small"}
    times = measured["neg"]["Float small"]["calls"]
    assert len(times) == 4
    assert all(value > 0 for one in times.values() for pair in one.values() for value in pair)  # type: ignore[attr-defined]
    number = python_kernels.call_class("aten::neg", (torch.empty(5, device="meta"),), {})[0]
    assert int(measured["neg"]["Float small"]["number"], 16) == number & (2**64 - 1)
    assert tune.measure("neg", 1, seconds=-1) == {}


def test_what_is_strict_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "verdicts", lambda: {"neg": {"verdict": "STRICT"}})
    monkeypatch.setattr(tune, "_times", lambda *_: FASTER)
    report: list[str] = []
    tune.measure("exp,neg,abs", 1, lambda name, row: report.append(name), shapes=("tiny",))
    assert report[0] == "neg" and set(report) == {"exp", "neg", "abs"}


def test_a_slow_kernel_is_not_served_and_a_fast_one_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """By measured times: one sleeps, and the other returns at once what need not be right here."""

    def slow(x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.2)
        return torch.empty_like(x)

    def fast(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    package.load()
    functions = {**(package._functions or {}), "exp": slow, "cos": fast}
    monkeypatch.setattr(package, "_functions", functions)
    for name in ("exp", "cos"):
        monkeypatch.setattr(implementations._functions[name], "_function", None)
    strict = {"verdict": "STRICT", "cases": 1, "first": None}
    monkeypatch.setattr(tables, "verdicts", lambda: dict.fromkeys(("exp", "cos", "sin"), strict))
    monkeypatch.setattr(tune, "_WARM", 1)
    monkeypatch.setattr(tune.timing, "_CALLS", 2)
    # The native kernel takes a millisecond, so that a busy machine does not make the fast one slow.
    large = torch.ones(1024, 1024, device="flagos")
    made = {name: measured_calls._bound(name, large) for name in ("exp", "cos")}
    monkeypatch.setattr(tune, "calls", lambda shape: made)
    rows: list[tune.Row] = []
    measured = tune.measure("exp,cos", 3, lambda _, row: rows.append(row), shapes=("large",))
    assert [row.error for row in rows] == ["", ""]
    monkeypatch.setattr(tables, "speed", lambda: measured)
    monkeypatch.setenv("FLAGOS_FLAGGEMS", "auto")
    assert tables.not_by_default("cos") is None
    assert tables.faster_classes("cos") == (
        python_kernels.call_class("aten::cos", (large,), {})[0],
    )
    assert "its class is one of the 1 of 1 in which" in (tables.speed_condition("cos") or "")
    assert tables.faster_classes("exp") == ()
    assert "in none of 1 classes of calls" in (tables.not_by_default("exp") or "")
    assert "its speed is not known" in (tables.not_by_default("sin") or "")
    monkeypatch.setenv("FLAGOS_FLAGGEMS", "verified")
    assert tables.not_by_default("exp") is None and tables.faster_classes("exp") is None


@pytest.mark.parametrize(
    ("host", "device", "faster"),
    [
        ([5.0, 10.0], [2.0, 2.0], True),
        ([5.0, 10.0], [2.2, 2.0], True),  # a quarter of a microsecond is no loss
        ([5.0, 10.0], [2.3, 2.0], False),
        ([5.0, 10.0], [101.0, 100.0], True),
        ([5.0, 10.0], [103.0, 100.0], False),
        ([10.3, 10.0], [50.0, 100.0], False),  # the host would wait
        ([10.1, 10.0], [50.0, 100.0], True),
        ([10.0, 10.0], [100.0, 100.0], False),  # no gain
    ],
)
def test_faster_is_no_slower_anywhere(host: list[float], device: list[float], faster: bool) -> None:
    assert tables.is_faster(Times(host=host, device=device)) is faster


def test_a_class_is_faster_if_each_of_its_calls_is() -> None:
    slow = Times(host=[11.0, 10.0], device=[2.0, 2.0])
    both: Speed = {
        "a": {"number": "1", "calls": {"x": FASTER, "y": slow}},
        "b": speed()["Float small"],
    }
    assert tables.faster(both) == ["b"]


def test_the_command_that_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "speed.json"
    asked = ["--ops", "exp", "--rounds", "1", "--no-records", "--out", str(out)]
    assert tune.main(asked) == 0
    assert capsys.readouterr().out.startswith("1 overloads measured")
    assert tune.main(["--ops", "ex*", "--resume", "--seconds", "0", "--out", str(out)]) == 0
    assert "no time left" in capsys.readouterr().err
    assert set(tables.continued(out, "speed")) == {"exp"}
    assert tune.main([*asked, "--record", str(tmp_path / "no.rec")]) == 1
    assert "no.rec" in capsys.readouterr().err


def test_what_was_not_measured_anew_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed.json"
    before = {name: speed() for name in ("exp", "neg", "sin")}
    table_file.write(out, tables.table(before))
    one = tune.Candidate(0x2A, "anew", "small", lambda: lambda: None)
    monkeypatch.setattr(tune, "_candidates", lambda *_: {name: [one] for name in before})
    anew = {"anew": {"number": "2a", "calls": {"small": FASTER}}}

    def times(name: str, *_: Any) -> Times:
        if name == "neg":
            raise RuntimeError("not today")
        if name == "sin":
            os.kill(os.getpid(), signal.SIGINT)
        return FASTER

    monkeypatch.setattr(tune, "_times", times)
    assert tune.main(["--out", str(out)]) == 0
    assert json.loads(out.read_text())["overloads"] == before, "an interrupt leaves it as it was"
    assert tables.continued(out, "speed") == {"exp": anew}, "and what there is lies beside it"
    monkeypatch.setattr(tune, "_candidates", lambda *_: {"exp": [one], "neg": [one]})
    assert tune.main(["--out", str(out), "--ops", "[en]*"]) == 0
    assert tables.continued(out, "speed") == {"exp": anew, "sin": before["sin"]}, (
        "neg was tried in vain"
    )
    assert tune.main(["--out", str(out), "--seconds", "0"]) == 0
    assert tables.continued(out, "speed") == {"exp": anew, "sin": before["sin"]}
