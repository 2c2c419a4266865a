"""Tables that are broken are not used, and named; those that ship serve instead."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flagos.cli.output import CommandError
from torch_fl.flaggems import package, table_file, tables
from torch_fl_tools.flaggems import tune
from torch_fl_tools.flaggems.verify import command as verify_command

TIMES = {"host": [5, 10.0], "device": [2.0, 2.5]}
RIGHT: dict[str, dict[str, Any]] = {
    "verdicts": {
        "exp": {"verdict": "STRICT", "plain": "STRICT", "cases": 3, "first": None},
        "sin": {"verdict": "STRICT", "cases": 3, "first": "sample 1: empty", "only": ["nonempty"]},
        "cos": {"verdict": "FAILED", "first": "sample 0: wrong"},
        "abs": {"verdict": "BASIC", "first": "sample 1: strides", "replayed": 0}
        | {"not_replayed": ["it waits"], "declines": "sample 2: rank", "declined": 1},
        "neg": {"verdict": "UNTESTED", "first": "no sample calls it"},
    },
    "speed": {"exp": {"Float small": {"number": "9f", "calls": {"small": TIMES}}}},
}
STRICT: dict[str, Any] = {"verdict": "STRICT", "cases": 3, "first": None}
WITHIN = {**STRICT, "only": ["nonempty"]}
NOT_STRICT = "and none of STRICT, BASIC, FAILED, UNTESTED"


def _class(number: str, times: Any) -> dict[str, Any]:
    return {"a": {"number": number, "calls": {"x": times}}}


NO_TABLES = {
    '{"over': "it is no table (JSONDecodeError: ",
    "\xff": "it is no table (UnicodeDecodeError: ",
    "[]": "it is no table (it has no object `overloads`)",
    "{}": "it is no table (it has no object `overloads`)",
    '{"overloads": []}': "it is no table (it has no object `overloads`)",
    "[" * 200_000: "maximum recursion depth exceeded",
}
ENTRIES: dict[str, list[tuple[Any, str]]] = {
    "verdicts": [
        ([], "it is no object"),
        ({}, f"`verdict` is None, {NOT_STRICT}"),
        ({"small": 0.5}, f"`verdict` is None, {NOT_STRICT}"),
        ({"verdict": "GOOD"}, f"`verdict` is 'GOOD', {NOT_STRICT}"),
        ({"verdict": ["STRICT"]}, f"`verdict` is ['STRICT'], {NOT_STRICT}"),
        ({**STRICT, "plain": {}}, f"`plain` is {{}}, {NOT_STRICT}"),
        ({"verdict": "FAILED"}, "`first` is None, and no string"),
        ({"verdict": "BASIC", "first": None}, "`first` is None, and no string"),
        ({"verdict": "UNTESTED", "first": 3}, "`first` is 3, and no string"),
        ({"verdict": "STRICT"}, "`cases` is None, and no whole number"),
        ({**STRICT, "cases": "3"}, "`cases` is '3', and no whole number"),
        ({**STRICT, "cases": True}, "`cases` is True, and no whole number"),
        (WITHIN, "`first` is None, and no string"),
        ({"verdict": "STRICT", "cases": 3, "only": []}, "`first` is None, and no string"),
        (
            {**WITHIN, "first": "a", "only": "nonempty"},
            "`only` is 'nonempty', and no list of strings",
        ),
        ({**WITHIN, "first": "a", "only": [1]}, "`only` is [1], and no list of strings"),
        ({**WITHIN, "first": "a", "only": None}, "`only` is None, and no list of strings"),
        ({**STRICT, "not_replayed": 1}, "`not_replayed` is 1, and no list of strings"),
        ({**STRICT, "not_replayed": ["it waits"]}, "`replayed` is None, and no whole number"),
        ({**STRICT, "replayed": "3"}, "`replayed` is '3', and no whole number"),
        ({**STRICT, "declines": "rank"}, "it has `declines`, and no `declined`"),
    ],
    "speed": [
        ([], "it is no object"),
        ({}, "it has no classes of calls"),
        (STRICT, "`verdict` is STRICT, and no class with measured `calls`"),
        ({"small": 0.9}, "`small` is 0.9, and no class with measured `calls`"),
        (
            {"a": {"number": "1", "calls": {}}},
            "`a` is {'number': '1', 'calls': {}}, and no class with measured `calls`",
        ),
        (_class("zz", TIMES), "`number` of `a` is 'zz', and no hexadecimal number"),
        *(
            (_class("1", wrong), f"`x` is {wrong}, and no times on the host and on the device")
            for wrong in (
                {"host": [1.0, 2.0]},
                *(
                    {**TIMES, "device": [1.0, number]}
                    for number in ("1", None, True, 0, -0.5, float("nan"), float("inf"))
                ),
            )
        ),
    ],
}
BROKEN = [
    *((kind, text, said) for kind in RIGHT for text, said in NO_TABLES.items()),
    *(
        (
            kind,
            json.dumps({"overloads": {**RIGHT[kind], "mm": entry}}),
            f"its entry 'mm' is broken: {said}",
        )
        for kind, entries in ENTRIES.items()
        for entry, said in entries
    ),
]
MADE_BY = {"verdicts": "flagos verify", "speed": "flagos tune"}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A chip of its own, whose tables are below `tmp_path`."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(tables, "chip", lambda: "A chip")
    monkeypatch.setattr(tables, "SHIPPED", tmp_path / "shipped")
    tables._table.cache_clear()
    yield
    tables._table.cache_clear()


def _path(kind: str) -> Path:
    return tables.folder() / tables.file_name(kind, "A chip", package.version())


def _shipped(kind: str, chip: str = "A chip") -> Path:
    return tables.shipped(kind, chip, package.version())


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="latin-1")


def _read(kind: str) -> dict[str, Any]:
    return tables.verdicts() if kind == "verdicts" else tables.speed()


@pytest.mark.parametrize("kind", RIGHT)
def test_a_right_table_is_read_and_the_users_own_beats_the_shipped(kind: str) -> None:
    table_file.write(_shipped(kind), tables.table({}))
    table_file.write(_path(kind), tables.table(RIGHT[kind]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert _read(kind) == RIGHT[kind]
    assert tables.continued(_path(kind), kind) == RIGHT[kind]


def test_verdicts_of_a_chip_with_the_same_processor_serve_and_say_whose_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = "Another chip"
    entries = {**RIGHT["verdicts"], "neg": {"verdict": "FAILED", "cases": 1, "first": "neg(1)"}}
    for kind in RIGHT:
        made = {**tables.table(entries if kind == "verdicts" else RIGHT[kind]), "chip": other}
        table_file.write(_shipped(kind, other), made)
    assert tables.verdicts() == {}, "the control: no chip is taken for another without a reason"
    monkeypatch.setattr(tables, "_SAME_PROCESSOR", {"A chip": other})
    tables._table.cache_clear()
    assert tables.verdicts() == entries and tables.speed() == {}, "memory is another"
    assert tables.samples_from() == other
    assert tables.not_by_default("neg") == (
        "verified to be wrong on Another chip, whose processor A chip has: neg(1)"
    )
    completed = tables.current()
    assert completed is not None
    assert (completed["chip"], completed["samples_from"]) == ("A chip", other)
    wrong = {"verdict": "FAILED", "cases": 1, "first": "recorded call neg(2)", "wrong_on": "A chip"}
    completed["overloads"] = {**entries, "neg": wrong}
    path = _path("verdicts")
    table_file.write(path, completed)
    tables._table.cache_clear()
    assert tables.samples_from() == other and tables.continued(path) == completed["overloads"]
    assert tables.not_by_default("neg") == "verified to be wrong on A chip: recorded call neg(2)"
    # What continues it hands on whose samples it has; what is made anew has none of them.
    tables.keep(path, {"neg": wrong}, {"neg"}, True)
    assert tables.carried(path) == {"samples_from": other}
    tables.keep(path, {"neg": wrong}, {*entries, "neg"}, True)
    assert tables.carried(path) == {}
    table_file.write(path, tables.table({}))
    tables._table.cache_clear()
    assert tables.verdicts() == {} and tables.samples_from() is None, "its own come first"


def test_a_table_that_was_given_is_told_of_this_chip(tmp_path: Path) -> None:
    given = tmp_path / "given.json"
    wrong = {"neg": {"verdict": "FAILED", "cases": 1, "first": "neg(1)"}}
    table_file.write(given, {**tables.table(wrong), "chip": "A chip from elsewhere"})
    try:
        tables.assume(given)
        assert tables.not_by_default("neg") == "verified to be wrong on A chip: neg(1)"
    finally:
        tables._assumed.clear()
    given.write_text('{"overloads": {}}')
    assert tables.current(given) == {"overloads": {}}


@pytest.mark.parametrize("kind", RIGHT)
def test_without_tables_nothing_is_said(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a file").touch()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for base in (tmp_path, tmp_path / "a file"):
            monkeypatch.setenv("XDG_DATA_HOME", str(base))
            tables._table.cache_clear()
            assert _read(kind) == {} == tables.continued(_path(kind), kind)


def test_a_compressed_table_is_smaller_and_whole_or_refused() -> None:
    path = _shipped("verdicts")
    made = tables.table(dict.fromkeys(map(str, range(1000)), STRICT))
    tables.write(path, made)
    assert path.stat().st_size < len(json.dumps(made)) / 10
    assert tables.verdicts() == made["overloads"] == tables.continued(path)
    data = path.read_bytes()
    for broken in (data[:-9], data[:40] + b"?" * 9 + data[49:]):
        path.write_bytes(broken)
        with pytest.raises(RuntimeError, match="it is no table"):
            tables.continued(path)


@pytest.mark.parametrize("shipped", [True, False])
@pytest.mark.parametrize(("kind", "text", "said"), BROKEN, ids=lambda value: value[:80])
def test_a_broken_table_is_not_used(kind: str, text: str, said: str, shipped: bool) -> None:
    path = _path(kind)
    _put(path, text)
    if shipped:
        table_file.write(_shipped(kind), tables.table(RIGHT[kind]))
    with pytest.warns(RuntimeWarning) as caught:
        found = [_read(kind) for _ in range(2)]
    assert found == [RIGHT[kind] if shipped else {}] * 2
    (warning,) = caught
    message = str(warning.message)
    assert message.startswith(f"{path} is not used: {said}"), message
    assert message.endswith(f"; remove it, or run `{MADE_BY[kind]}`"), message
    with pytest.raises(RuntimeError, match=re.escape(f"{path} cannot be resumed: {said}")):
        tables.continued(path, kind)


@pytest.mark.parametrize("kind", RIGHT)
def test_a_table_that_cannot_be_read_is_not_used(kind: str) -> None:
    _path(kind).mkdir(parents=True)
    with pytest.warns(RuntimeWarning, match="is not used: it is no table .IsADirectoryError"):
        assert _read(kind) == {}


@pytest.mark.parametrize("kind", RIGHT)
def test_a_complete_run_replaces_a_broken_table(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _path(kind)
    table_file.write(path, tables.table({"no operator": {}}))
    tables.keep(path, RIGHT[kind], set(RIGHT[kind]), False, kind)
    assert f"{path} stays as it is: its entry 'no operator'" in capsys.readouterr().err
    tables.keep(path, RIGHT[kind], set(RIGHT[kind]), True, kind)
    assert f"{path} is made anew: its entry 'no operator'" in capsys.readouterr().err
    assert _read(kind) == RIGHT[kind]


def test_showing_a_broken_table_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    _put(_path("verdicts"), "[]")
    with pytest.warns(RuntimeWarning, match="is not used"):
        assert verify_command.main(["--show"]) == 1
    assert "no table of A chip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("verdicts", '{"over', "it is no table (JSONDecodeError: "),
        (
            "verdicts",
            '{"overloads": {"exp": {"verdict": "FAILED"}}}',
            "its entry 'exp' is broken: `first` is None, and no string",
        ),
        (
            "speed",
            '{"overloads": {"exp": {"small": 0.9}}}',
            "its entry 'exp' is broken: `small` is 0.9, and no class",
        ),
    ],
)
def test_with_a_broken_table_the_device_is_registered(kind: str, text: str, said: str) -> None:
    path = _path(kind)
    _put(path, text)
    if kind == "speed":  # speeds are read of STRICT overloads alone
        verdicts = {"exp": STRICT, "sin": STRICT}
        table_file.write(_path("verdicts"), tables.table(verdicts))
    # Candidates are registered when torch_fl is imported, so the chip is told before.
    program = (
        "import sys\n"
        "from flagos.on_import import when_imported\n"
        "def told():\n"
        "    sys.modules['torch_fl.flaggems.tables'].chip = lambda: 'A chip'\n"
        "when_imported('torch_fl.flaggems.tables', told)\n"
        "import torch_fl, torch\n"
        "print(torch.ones(2, device='flagos').exp().shape, torch_fl.explain('exp').data['winner'])\n"
    )
    environment = {**os.environ, "FLAGOS_FLAGGEMS": "auto"}
    ran = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    shape, winner = ran.stdout.rsplit(maxsplit=1)
    assert shape == "torch.Size([2])" and winner.endswith(".native")
    assert ran.stderr.count("RuntimeWarning") == 1, ran.stderr
    assert f"RuntimeWarning: {path} is not used: {said}" in ran.stderr
    assert f"remove it, or run `{MADE_BY[kind]}`" in ran.stderr


@pytest.mark.parametrize(
    ("variable", "value", "reason"),
    [
        ("FLAGOS_FLAGGEMS", "good", "ValueError: FLAGOS_FLAGGEMS=good: expected one of off, auto"),
        ("FLAGOS_OP_mm", "flagems", "ConfigError: environment: `flagems` is not a backend"),
    ],
)
def test_both_imports_tell_what_is_wrong(variable: str, value: str, reason: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", "import torch, torch_fl"],
        env={**os.environ, variable: value},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 1
    assert f"RuntimeWarning: the flagos device was not registered. {reason}" in ran.stderr
    assert reason in ran.stderr.splitlines()[-1], ran.stderr


@pytest.mark.parametrize("command", [verify_command.main, tune.main])
def test_a_table_has_a_place_before_anything_runs(tmp_path: Path, command: Any) -> None:
    with pytest.raises(CommandError, match="new is no folder"):
        command(["--out", str(tmp_path / "new" / "table.json"), "--seconds", "0"])
    with pytest.raises(CommandError, match="is a folder"):
        command(["--out", str(tmp_path), "--seconds", "0"])
    assert not (tmp_path / "new").exists()
