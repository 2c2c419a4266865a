"""Mistakes in files and variables: an error with the place and the nearest valid name."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagos import _core
from python.tests.interpreters import Interpreter

# Registers two operators, then says what the configuration makes of them.
PROGRAM = """
import flagos
from flagos import _core
for op in ("aten::mm", "aten::add.Tensor"):
    _core.register_impl(op, "cpu.native", "vendor", vendor="host", backend="cpu")
    _core.register_impl(op, "ref", "reference")
try:
    flagos.initialize()
    entry = flagos.explain("mm").data
    print(entry["winner"], "|", entry["decided_by"])
except flagos.ConfigError as error:
    print(error)
    flagos.device_count()  # the process goes on
"""


def outcome(interpreter: Interpreter, **variables: str) -> str:
    """The program's standard output."""
    result = interpreter.program(PROGRAM, **variables)
    assert result.status == 0, result.err
    return result.out.strip()


def write(interpreter: Interpreter, name: str, text: str) -> Path:
    """Writes a file into the folder in which programs run."""
    path = interpreter.folder / name
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ('[ops]\n"aten::mn" = "cpu"\n', "flagos.toml:2", "aten::mm"),
        ('[ops]\n"mm" = "gpu"\n', "flagos.toml:2", "cpu"),
        ("\n[policy]\nstrikt = true\n", "flagos.toml:3", "strict"),
        ("[polcy]\nstrict = true\n", "flagos.toml:1", "policy"),
        ('[policy]\nstrict = "yes"\n', "flagos.toml:2", "true"),
        ("[ops\n", "flagos.toml:1", "]"),
        ('include = ["nowhere.toml"]\n', "flagos.toml:1", "nowhere.toml"),
    ],
)
def test_flagos_toml(interpreter: Interpreter, text: str, place: str, hint: str) -> None:
    write(interpreter, "flagos.toml", text)
    message = outcome(interpreter)
    assert place in message
    assert hint in message


@pytest.mark.parametrize(
    ("text", "place", "hint"),
    [
        ("# comment\nmm = cpuu\n", "my.conf:2", "cpu"),
        ("add.Tensr = cpu\n", "my.conf:1", "aten::add.Tensor"),
        ("add = cpu\n", "my.conf:1", "aten::add.Tensor"),
        ("mm cpu\n", "my.conf:1", "operator = backend"),
        ("include my.conf\n", "my.conf:1", "cycle"),
    ],
)
def test_backends_conf(interpreter: Interpreter, text: str, place: str, hint: str) -> None:
    path = write(interpreter, "my.conf", text)
    message = outcome(interpreter, FLAGOS_BACKEND_CONFIG=str(path))
    assert place in message
    assert hint in message


@pytest.mark.parametrize(
    ("variable", "value", "hint"),
    [
        ("FLAGOS_LOG_DISPACH", "1", "FLAGOS_LOG_DISPATCH"),
        ("FLAGOS_OP_mn", "cpu", "mm"),
        ("FLAGOS_OP_mm", "cpuu", "cpu"),
        ("FLAGOS_STRICT", "perhaps", "`1` or `0`"),
        ("FLAGOS_CONFIG", "nowhere.toml", "nowhere.toml"),
        ("FLAGOS_VENDOR", "nonsense", "host"),
        ("FLAGOS_HOST_MEMORY", "lots", "512MiB"),
        ("FLAGOS_LOCK", "nowhere.lock", "nowhere.lock"),
    ],
)
def test_variables(interpreter: Interpreter, variable: str, value: str, hint: str) -> None:
    message = outcome(interpreter, **{variable: value})
    assert hint in message
    assert "cpu.native |" not in message


def test_a_wrong_log_level_is_an_error_of_initialisation(interpreter: Interpreter) -> None:
    assert "FLAGOS_LOG" in outcome(interpreter, FLAGOS_LOG="info=debug=x")


def test_what_decided_is_named_and_the_stronger_layer_wins(interpreter: Interpreter) -> None:
    assert outcome(interpreter) == "cpu.native | the built-in default"
    write(interpreter, "flagos.toml", '[ops]\nmm = "reference"\n')
    assert outcome(interpreter) == "ref | flagos.toml:2"
    conf = write(interpreter, "my.conf", "\nmm = cpu\n")
    assert outcome(interpreter, FLAGOS_BACKEND_CONFIG=str(conf)) == f"cpu.native | {conf}:2"
    variables = {"FLAGOS_BACKEND_CONFIG": str(conf), "FLAGOS_OP_mm": "reference"}
    assert outcome(interpreter, **variables) == "ref | the variable FLAGOS_OP_mm"


def test_a_shipped_file_is_the_weakest_layer(interpreter: Interpreter) -> None:
    shipped = write(interpreter, "shipped.conf", "mm = reference\n")
    program = (
        f"from flagos import _core\n_core.set_shipped_config({str(shipped)!r})\n"
        "print(_core.configuration()['files'])" + PROGRAM
    )
    result = interpreter.program(program)
    assert result.out == f"['{shipped}']\nref | {shipped}:1\n", result.err
    write(interpreter, "flagos.toml", '[ops]\nmm = "cpu"\n')
    assert interpreter.program(program).out.endswith("cpu.native | flagos.toml:2\n")


def test_reload_reads_again_and_a_mistake_changes_nothing(interpreter: Interpreter) -> None:
    result = interpreter.program(
        PROGRAM + "import os, pathlib\n"
        "pathlib.Path('flagos.toml').write_text('[ops]\\nmm = \"reference\"\\n')\n"
        "flagos.reload(); print(flagos.explain('mm').data['winner'])\n"
        "pathlib.Path('flagos.toml').write_text('[ops]\\nmm = \"nonsense\"\\n')\n"
        "try: _core.reload()\n"
        "except flagos.ConfigError as error: print('flagos.toml:2' in str(error))\n"
        "print(flagos.explain('mm').data['winner'])"
    )
    assert result.out.splitlines()[1:] == ["ref", "True", "ref"], result.err


def test_every_variable_is_documented() -> None:
    variables = _core.environment()
    assert len({variable["name"] for variable in variables}) == len(variables) > 20
    markdown = _core.environment_markdown()
    for variable in variables:
        assert variable["doc"] and f"`{variable['name']}`" in markdown


def test_mistakes_in_variables_are_found_one_by_one(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "from flagos import _core\nfor finding in _core.check_environment(): print(finding)",
        FLAGOS_LOGG="1",
        FLAGOS_STRICTT="1",
        FLAGOS_METAX_BOXING="1",
    )
    first, second, third = result.out.splitlines()
    assert "FLAGOS_LOGG" in first and "FLAGOS_LOG`" in first and "True" in first
    assert "FLAGOS_METAX_BOXING" in second and "False" in second
    assert "FLAGOS_STRICTT" in third and "FLAGOS_STRICT`" in third and "True" in third
