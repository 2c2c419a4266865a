"""What `flagos <engine> check` says of each option."""

from __future__ import annotations

import argparse
import json

import pytest

from flagos_serving import commands

pytestmark = pytest.mark.host
GIVEN = ["--quantization", "awq", "--dtype=half", "-tp", "2", "--seed", "-1"]


def problem(option: str) -> dict[str, str]:
    return {"option": option, "reason": "of a reason", "remedy": "do that"}


@pytest.mark.parametrize(
    ("options", "refused", "others"),
    [
        ([], [], "served"),
        (["--quantization awq"], ["--quantization"], "served"),
        (["--dtype with -tp", "model"], ["--dtype", "-tp"], "served"),
        (["vLLM refuses it", "--seed"], ["--seed"], "unknown"),
    ],
)
def test_each_option(options: list[str], refused: list[str], others: str) -> None:
    told = commands.judged(GIVEN, [problem(option) for option in options])
    names = ["--quantization", "--dtype", "-tp", "--seed"]
    assert told == {name: "refused" if name in refused else others for name in names}


@pytest.mark.parametrize("as_json", [True, False])
@pytest.mark.parametrize("wrong", [True, False])
def test_what_is_printed(capsys: pytest.CaptureFixture[str], as_json: bool, wrong: bool) -> None:
    problems = [problem("--quantization awq")] if wrong else []
    options = argparse.Namespace(json=as_json, options=GIVEN)
    assert commands.print_check(options, problems, lambda: {"runner": "one"}) == int(wrong)
    shown = capsys.readouterr().out
    if as_json:
        found = json.loads(shown)
        assert found["options"]["--quantization"] == ("refused" if wrong else "served")
        assert found["serves"] == ({} if wrong else {"runner": "one"})
    elif wrong:
        assert shown.splitlines() == [
            "--quantization awq: of a reason; do that",
            "served: --dtype, -tp, --seed",
        ]
    else:
        assert shown.splitlines()[0].startswith("OK") and "--quantization, --dtype" in shown
