"""`flagos tune`: what is measured, in which order, and what is kept."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from torch_fl.flaggems import table_file, tables
from torch_fl_tools.flaggems import measured_calls, tune


def test_speed_is_measured_and_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers mean nothing here; that each has both classes, and none is lost, does."""
    verdicts = {"neg": {"verdict": "STRICT"}, "cos": {"verdict": "FAILED", "first": "wrong"}}
    monkeypatch.setattr(tables, "verdicts", lambda: verdicts)
    report: list[str] = []
    kept: list[set[str]] = []
    classes = (("tiny", 2), ("small", 1))
    monkeypatch.setattr(measured_calls, "_SIZES", {"tiny": 4, "small": 8})
    measured = tune.measure(
        "[cen][eox][gsp]",
        1,
        lambda name, row: report.append(f"{name} {row.shape}"),
        known={"exp": {"tiny": 1.0, "small": 1.0}},
        on_progress=lambda found: kept.append(set(found)),
        classes=classes,
    )
    assert report[0].startswith("neg "), "what is STRICT comes first"
    assert "cos" not in measured, "what is wrong is not measured"
    assert measured["exp"] == {"tiny": 1.0, "small": 1.0}
    assert set(measured) == {"exp", "neg"} and kept == [{"exp", "neg"}]
    assert all(set(ratios) == {"tiny", "small"} for ratios in measured.values())
    assert all(ratio > 0 for ratios in measured.values() for ratio in ratios.values())
    assert tune.measure("neg", 1, seconds=-1, classes=classes) == {}


def test_the_command_that_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(measured_calls, "_SIZES", {"small": 4, "large": 8})
    out = tmp_path / "speed.json"
    assert tune.main(["--ops", "exp", "--rounds", "1", "--out", str(out)]) == 0
    assert capsys.readouterr().out.startswith("1 measured")
    assert tune.main(["--ops", "ex*", "--resume", "--seconds", "0", "--out", str(out)]) == 0
    assert "no time left" in capsys.readouterr().err
    assert set(tables.continued(out, "speed")) == {"exp"}


def test_what_was_not_measured_anew_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "speed.json"
    before = {name: {"small": 1.0, "large": 1.0} for name in ("exp", "neg", "sin")}
    table_file.write(out, tables.table(before))
    monkeypatch.setattr(tune, "calls", lambda shape: dict.fromkeys(before))
    anew = {"small": 0.5, "large": 0.5}

    def ratio(name: str, *_: Any) -> float:
        if name == "neg":
            raise RuntimeError("not today")
        if name == "sin":
            os.kill(os.getpid(), signal.SIGINT)
        return 0.5

    monkeypatch.setattr(tune, "_ratio", ratio)
    assert tune.main(["--out", str(out)]) == 0
    assert json.loads(out.read_text())["overloads"] == before, "an interrupt leaves it as it was"
    assert tables.continued(out, "speed") == {"exp": anew}, "and what there is lies beside it"
    assert tune.main(["--out", str(out), "--ops", "[en]*"]) == 0
    assert tables.continued(out, "speed") == {"exp": anew, "sin": before["sin"]}, (
        "neg was tried in vain"
    )
    assert tune.main(["--out", str(out), "--seconds", "0"]) == 0
    assert tables.continued(out, "speed") == {"exp": anew, "sin": before["sin"]}
