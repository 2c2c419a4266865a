"""The `flagos` command: text for people, JSON for programs, plain words when something is missing."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

import flagos
from python.tests.interpreters import FakePackages, Interpreter

#: What an adapter contributes, in the place of the real one.
ADAPTER = """
from flagos import _core

def register():
    _core.register_impls("aten", ["mm", "add.Tensor", "add.out"], "cpu.native", "vendor", "host", "cpu")
    _core.register_impl("aten::mm", "fast", "flagos", len, backend="flaggems")
"""
OPERATORS = "[flagos.operators]\naten = torch_fl:register\n"


@pytest.fixture
def adapted(without_torch: Interpreter, fakes: FakePackages) -> Interpreter:
    """An interpreter with a made-up adapter that registers three operators."""
    fakes.package("torch_fl", {"__init__.py": ADAPTER})
    fakes.distribution("torch-fl", flagos.__version__, OPERATORS)
    run = without_torch.run

    class Adapted(Interpreter):
        def run(self, *arguments: str, **variables: str):  # type: ignore[no-untyped-def]
            return run(*arguments, PYTHONPATH=str(fakes.folder), **variables)

    return Adapted(without_torch.python, without_torch.folder)


def test_the_installed_script_runs() -> None:
    script = Path(sys.executable).with_name("flagos")
    assert script.exists()
    assert shutil.which(str(script))


@pytest.mark.parametrize("command", ["devices", "ops", "explain", "doctor", "env", "demo"])
def test_every_command_is_listed_and_teaches_with_an_example(
    interpreter: Interpreter, command: str
) -> None:
    assert command in interpreter.flagos("--help").out
    result = interpreter.flagos(command, "--help")
    assert result.status == 0, result.err
    assert "--json" in result.out
    if command != "demo":  # its help is the demonstration's own
        assert f"$ flagos {command}" in result.out


def test_nothing_asked_shows_the_help(interpreter: Interpreter) -> None:
    result = interpreter.flagos()
    assert result.status == 2
    assert "doctor" in result.out


def test_version(interpreter: Interpreter) -> None:
    assert interpreter.flagos("--version").out.strip() == flagos.__version__


def test_a_command_that_does_not_exist(interpreter: Interpreter) -> None:
    result = interpreter.flagos("devcies")
    assert result.status == 2
    assert "devices" in result.err


# ---- what adapters contribute


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("demo", "torch"),
        ("verify", "tools"),
        ("report", "tools"),
        ("bench", "torch"),
        ("lightx2v", "lightx2v"),
        ("vllm", "vllm"),
        ("sglang", "sglang"),
    ],
)
def test_the_command_of_a_missing_adapter_says_what_to_install(
    without_torch: Interpreter, command: str, extra: str
) -> None:
    assert f" {command} " in without_torch.flagos("--help").out
    result = without_torch.flagos(command, "--help")
    assert result.status == 1 and result.out == ""
    assert f"pip install 'flagos[{extra}]'" in result.err and "Traceback" not in result.err


COMMAND = """
import sys
from flagos.cli.output import CommandError

def run(arguments):
    if arguments == ["wrong"]:
        raise CommandError("that is wrong", "do it right")
    print(arguments)
    return 3
"""


def test_an_adapter_contributes_a_command(without_torch: Interpreter, fakes: FakePackages) -> None:
    fakes.package("made_up", {"__init__.py": COMMAND})
    fakes.distribution("made-up", "1.0", "[flagos.commands]\nmake-up = made_up:run\n")
    path = {"PYTHONPATH": str(fakes.folder)}
    assert "make-up   of made-up" in without_torch.flagos("--help", **path).out
    result = without_torch.flagos("make-up", "a", "--help", **path)
    assert (result.status, result.out) == (3, "['a', '--help']\n")
    result = without_torch.flagos("make-up", "wrong", **path)
    assert result.status == 1 and result.err == "error: that is wrong\n  fix: do it right\n"
    assert "make-up" in without_torch.flagos("makeup", **path).err


def test_a_command_that_cannot_be_imported_breaks_no_other(
    without_torch: Interpreter, fakes: FakePackages
) -> None:
    fakes.package("made_up", {"__init__.py": "raise OSError('libmade.so: undefined symbol')"})
    fakes.distribution("made-up", "1.0", "[flagos.commands]\nmake-up = made_up:run\n")
    path = {"PYTHONPATH": str(fakes.folder)}
    result = without_torch.flagos("make-up", **path)
    assert result.status == 1
    assert "made-up" in result.err and "undefined symbol" in result.err
    assert "Traceback" not in result.err
    assert "make-up" in without_torch.flagos("--help", **path).out
    assert without_torch.flagos("devices", **path).status == 0


def test_two_adapters_with_one_command_are_named(
    without_torch: Interpreter, fakes: FakePackages
) -> None:
    for name in ("one", "two"):
        fakes.distribution(f"made-{name}", "1.0", "[flagos.commands]\nmake-up = made_up:run\n")
    result = without_torch.flagos("make-up", PYTHONPATH=str(fakes.folder))
    assert result.status == 1 and "made-one and made-two" in result.err


def test_nothing_of_an_adapter_is_imported_until_it_is_asked(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "import sys; from flagos.cli import run; run([]); run(['env', '--json'])\n"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    assert result.status == 0, result.err
    assert not {
        "torch",
        "torch_fl",
        "torch_fl_cli",
        "torch_fl_tools",
        "te_fl",
        "lightx2v_fl",
        "vllm_flagos",
        "sglang_flagos",
        "flagos_trainers",
    } & set(result.err.split())


# ---- devices


def test_devices_as_json(without_torch: Interpreter) -> None:
    result = without_torch.flagos("devices", "--json", FLAGOS_HOST_DEVICES="2")
    assert result.status == 0, result.err
    devices = result.json["devices"]
    assert [device["index"] for device in devices] == [0, 1]
    assert set(devices[0]) == {
        "index",
        "name",
        "vendor",
        "total_memory",
        "multi_processor_count",
        "major",
        "minor",
    }
    vendors = {vendor["name"]: vendor for vendor in result.json["vendors"]}
    assert set(vendors) >= {"cuda", "host"}
    assert vendors["host"]["devices"] == 2
    assert [name for name, vendor in vendors.items() if vendor["chosen"]] == ["host"]
    assert vendors["cuda"]["devices"] == 0
    assert vendors["cuda"]["reason"]


def test_devices_as_text(without_torch: Interpreter) -> None:
    lines = without_torch.flagos("devices").out.splitlines()
    assert lines[0].split() == ["device", "vendor", "name", "memory", "cores"]
    assert lines[1].startswith("flagos:0  host")
    start = lines.index("")
    assert lines[start + 1].split() == ["vendor", "devices", "used", "why"]
    assert lines[start + 2].split()[:3] == ["cuda", "0", "no"]
    end = lines.index("", start + 1) if "" in lines[start + 1 :] else len(lines)
    assert lines[end - 1].split()[:3] == ["host", "1", "yes"]


def test_devices_do_not_import_torch(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "import sys; from flagos.cli import run; run(['devices', '--json'])\n"
        "assert 'torch' not in sys.modules"
    )
    assert result.status == 0, result.err


def test_a_wrong_vendor_is_an_error_in_both_forms(without_torch: Interpreter) -> None:
    result = without_torch.flagos("devices", FLAGOS_VENDOR="hots")
    assert result.status == 1
    assert result.out == ""
    assert "host" in result.err and "Traceback" not in result.err
    result = without_torch.flagos("devices", "--json", FLAGOS_VENDOR="hots")
    assert result.status == 1
    assert "hots" in result.json["error"]


# ---- ops, explain


def test_ops_without_an_adapter_says_so(without_torch: Interpreter) -> None:
    result = without_torch.flagos("ops")
    assert result.status == 1
    assert "torch_fl is not loaded" in result.err
    assert "pip install 'flagos[torch]'" in result.err
    result = without_torch.flagos("ops", "--json")
    assert result.json["operators"] == []
    assert "not installed" in result.json["adapters"]["torch_fl"]


def test_an_optional_adapter_is_missed_by_who_asks_for_it(without_torch: Interpreter) -> None:
    assert "lightx2v" not in without_torch.flagos("ops").err
    result = without_torch.flagos("explain", "lightx2v::rms_norm")
    assert result.status == 1 and "pip install 'flagos[lightx2v]'" in result.err
    result = without_torch.flagos("lightx2v", "configs")
    assert result.status == 1 and "pip install 'flagos[lightx2v]'" in result.err


def test_ops_with_a_broken_adapter_says_why(
    without_torch: Interpreter, fakes: FakePackages
) -> None:
    fakes.package("torch_fl", {"__init__.py": "raise OSError('libtorch.so: undefined symbol')"})
    fakes.distribution("torch-fl", flagos.__version__, OPERATORS)
    result = without_torch.flagos("ops", PYTHONPATH=str(fakes.folder))
    assert result.status == 1
    assert "undefined symbol" in result.err
    assert "flagos doctor" in result.err


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([], ["aten::add.Tensor", "aten::add.out", "aten::mm"]),
        (["--filter", "add"], ["aten::add.Tensor", "aten::add.out"]),
        (["--filter", "add.*"], ["aten::add.Tensor", "aten::add.out"]),
        (["--filter", "aten::*out"], ["aten::add.out"]),
        (["--backend", "flaggems"], ["aten::mm"]),
        (["--backend", "host"], ["aten::add.Tensor", "aten::add.out"]),
        (["--backend", "cpu.native", "--filter", "mm"], []),
    ],
)
def test_ops_are_filtered(adapted: Interpreter, arguments: list[str], names: list[str]) -> None:
    result = adapted.flagos("ops", "--json", *arguments)
    assert result.status == 0, result.err
    assert [entry["op"] for entry in result.json["operators"]] == names
    assert result.json["adapters"]["torch_fl"] is None
    text = adapted.flagos("ops", *arguments).out.splitlines()
    assert text[-1] == f"{len(names)} of 3 operators"
    assert [line.split()[0] for line in text[1:-1]] == names


def test_a_lock_file_that_nobody_reads_is_nothing_to_wait_for(adapted: Interpreter) -> None:
    os.mkfifo(adapted.folder / "pipe")
    result = adapted.flagos("ops", "--lock", "pipe")
    assert result.status == 1 and "pipe" in result.err
    assert "Traceback" not in result.err


def test_ops_writes_a_lock_file_and_refuses_another_plan(adapted: Interpreter) -> None:
    assert adapted.flagos("ops", "--lock", "plan.lock").status == 0
    assert adapted.flagos("ops", "--check-lock", "plan.lock").status == 0
    result = adapted.flagos("ops", "--check-lock", "plan.lock", FLAGOS_OP_mm="cpu")
    assert result.status == 1
    assert "aten::mm: fast -> cpu.native" in result.err


def test_explain(adapted: Interpreter) -> None:
    data = adapted.flagos("explain", "mm", "--json").json
    assert (data["op"], data["winner"]) == ("aten::mm", "fast")
    text = adapted.flagos("explain", "aten::mm", FLAGOS_OP_mm="cpu").out
    assert text.startswith("aten::mm -> cpu.native")
    assert "FLAGOS_OP_mm" in text


def test_explain_of_an_unknown_operator_offers_the_nearest(adapted: Interpreter) -> None:
    result = adapted.flagos("explain", "aten::nm")
    assert result.status == 1
    assert "aten::mm" in result.err
    assert "aten::mm" in adapted.flagos("explain", "aten::nm", "--json").json["error"]


# ---- env


def test_env_shows_what_is_set(without_torch: Interpreter) -> None:
    variables = {"FLAGOS_STRICT": "1", "FLAGOS_OP_add__Tensor": "cpu"}
    found = without_torch.flagos("env", "--set", "--json", **variables).json["variables"]
    # The one variable that is set even if it is empty.
    variables["CUDA_VISIBLE_DEVICES"] = ""
    assert {entry["name"]: entry["value"] for entry in found} == variables
    everything = without_torch.flagos("env").out
    assert "FLAGOS_HOST_DEVICES" in everything
    assert everything.splitlines()[0].split() == ["variable", "value", "default", "meaning"]


def test_env_works_where_a_variable_is_wrong(without_torch: Interpreter) -> None:
    assert without_torch.flagos("env", FLAGOS_NONSENSE="1").status == 0
