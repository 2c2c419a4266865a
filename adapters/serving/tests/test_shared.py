"""What engines' adapters share beside operators: the view of torch, refusals, reports, kernels that decline."""

from __future__ import annotations

import argparse
import json
from types import ModuleType
from typing import Any

import pytest
import torch

import flagos
from flagos_serving import commands, declaration, device, torch_view
from flagos_serving.refusals import Problem, Refusals

ENGINE = declaration.Framework("An Engine", "no_such_engine", "no_such_engine_flagos")


def test_a_module_gets_the_view_and_torch_stays() -> None:
    module = ModuleType("no_such_engine.module")
    vars(module)["torch"] = torch
    view = torch_view.Torch(torch_view.Cuda())
    torch_view.install(ENGINE, module, view)
    seen: Any = vars(module)["torch"]
    assert seen.cuda.Stream is torch.flagos.Stream  # type: ignore[attr-defined]
    assert seen.cuda.OutOfMemoryError is torch.cuda.OutOfMemoryError
    assert seen.nn is torch.nn and torch.cuda.Stream is not seen.cuda.Stream
    with pytest.raises(RuntimeError, match="no-such-engine-flagos knows"):
        torch_view.install(ENGINE, ModuleType("no_such_engine.other"), view)


def test_problems_are_raised_together_or_collected() -> None:
    refusals = Refusals()
    refusals.report(())
    found = [
        Problem("--one", "it is not there", "leave it out"),
        Problem("--two", "so", "write 2"),
    ]
    with pytest.raises(ValueError, match="--one: it is not there; leave it out\n  --two: so; wri"):
        refusals.report(found)
    with refusals.collected() as collected:
        refusals.report(found)
        assert collected == found
    with pytest.raises(ValueError, match="--one"):
        refusals.report(found)


def test_a_check_lists_each_problem_once(capsys: pytest.CaptureFixture[str]) -> None:
    one = Problem("--one", "it is not there", "leave it out")
    listed = commands.listed([one, one], "An Engine", "ValueError: three")
    assert [entry["option"] for entry in listed] == ["--one", "An Engine refuses it"]
    options = argparse.Namespace(json=False, options=["--one", "--two=2"])
    assert commands.print_check(options, listed, dict) == 1
    assert capsys.readouterr().out.splitlines() == [
        "--one: it is not there; leave it out",
        "An Engine refuses it: ValueError: three",
    ]
    options = argparse.Namespace(json=True, options=["--two=2"])
    assert commands.print_check(options, [], lambda: {"a": "b"}) == 0
    assert json.loads(capsys.readouterr().out) == {
        "problems": [],
        "options": {"--two": "served"},
        "serves": {"a": "b"},
    }


def test_long_errors_are_cut() -> None:
    cut = commands.message(ValueError("x" * 1000))
    assert len(cut) < 450 and cut.endswith(" ...")
    assert commands.message(KeyError("a")) == "KeyError: 'a'"


def test_the_order_of_an_operators_implementations() -> None:
    def serve(x: int) -> int:
        return x

    def fast(x: int) -> int:
        if x > 2:
            raise declaration.decline("it is above 2")
        return -x

    name = "ordered"
    operator = ENGINE.declare(
        name, reference=serve, triton=serve, quick=(fast, None), absent=(fast, "it is not built")
    )
    report = str(flagos.explain(f"no_such_engine::{name}"))
    assert "* quick.ordered" in report and "it is not built" in report
    assert "An Engine is not installed (no module no_such_engine)" in report
    assert operator(2) == -2 and operator(3) == 3


def test_a_function_of_another_module_is_imported_when_it_is_called() -> None:
    absent = declaration.deferred("no_such_engine.kernels", "fast")
    with pytest.raises(ModuleNotFoundError, match="no_such_engine"):
        absent()
    assert declaration.deferred("math", "sqrt")(4.0) == 2.0


def test_arguments_that_ask_for_something_are_declined() -> None:
    declaration.decline_others("it", {"a": None, "b": False, "c": 1}, ignored=("c",))
    with pytest.raises(flagos.UnsupportedError, match="it does not know c, d"):
        declaration.decline_others("it", {"a": None, "c": 1, "d": 0.5})


def test_the_device_can_be_used_here(monkeypatch: pytest.MonkeyPatch) -> None:
    assert device.device_problem() is None
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    assert "this process has no flagos device" in (device.device_problem() or "")
