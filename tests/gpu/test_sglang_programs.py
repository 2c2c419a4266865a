"""`tests.gpu.sglang_programs` tells what rounding decides from what is wrong. Anywhere, from reports."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from tests.gpu import sglang_programs


@pytest.fixture
def more(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The tiny models."""
    for folder in (sglang_programs.TINY, sglang_programs.PROGRAMS):
        monkeypatch.syspath_prepend(str(folder))
    return import_module("more")


def judged(more: Any, model: Any) -> tuple[str, bool]:
    """Of the tokens of a model where Gemma's with a window of 16 is expected."""
    prompts = more.tiny.prompts()
    tokens = [more.tiny.greedy(each, prompts, new=8) for each in (more.model("windows"), model)]
    expected, reports = {"windows": tokens[0]}, {"flagos": {"tokens": tokens[1]}}
    return sglang_programs.judge("windows and caps", reports, expected)


def test_tokens_of_transformers_are_not_behind(more: Any) -> None:
    assert judged(more, more.windows()) == ("ran; transformers 5 of 5; behind 0.0000", True)


def test_what_rounding_decides_holds(more: Any) -> None:
    line, holds = judged(more, more.windows().bfloat16().float())
    assert holds and "transformers 5 of 5" not in line and "too far" not in line


def test_a_window_that_lacks_a_token_is_too_far_behind(more: Any) -> None:
    line, holds = judged(more, more.windows(15))
    assert not holds and "too far" in line
