"""The plan as data, as text and as a lock file; counters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import flagos
from flagos import _core, explanation


def test_an_explanation_names_winner_losers_and_what_decided(namespace: str) -> None:
    op = f"{namespace}::op"
    _core.register_impl(op, "a.native", "vendor", vendor="host", backend="cpu", priority=1)
    _core.register_impl(op, "b.native", "vendor", vendor="host", backend="cpu")
    explanation = flagos.explain(op)
    assert explanation.data["op"] == op
    assert explanation.data["winner"] == "a.native"
    assert explanation.data["backend"] == "cpu"
    assert explanation.data["decided_by"] == "the built-in default"
    chosen, lost = explanation.data["candidates"]
    assert (chosen["chosen"], chosen["reason"]) == (True, None)
    assert (lost["impl_id"], lost["reason"]) == ("b.native", "lower priority")
    text = str(explanation)
    assert text.startswith(f"{op} -> a.native")
    assert "lower priority" in text


def test_an_adapter_adds_notes_to_explanations(
    namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explanation, "_annotators", [])
    explanation.join(
        lambda entry: (
            explanation.Note("mine", {"op": entry["op"]}, "a word of mine")
            if entry["op"].endswith("a")
            else None
        )
    )
    _core.register_impls(namespace, ["a", "b"], "x", "flagos")
    noted = flagos.explain(f"{namespace}::a")
    assert noted.data["mine"] == {"op": f"{namespace}::a"}  # type: ignore[typeddict-item]
    assert str(noted).endswith("\n  a word of mine")
    assert "mine" not in flagos.explain(f"{namespace}::b").data


def test_an_unknown_operator_is_an_error_with_the_nearest_name(namespace: str) -> None:
    _core.register_impl(f"{namespace}::softmax", "x", "flagos")
    with pytest.raises(flagos.InvalidArgumentError) as caught:
        flagos.explain(f"{namespace}::softmaks")
    assert f"{namespace}::softmax" in (caught.value.hint or "")


def test_the_plan_is_plain_data_sorted_by_name(namespace: str) -> None:
    _core.register_impls(namespace, ["b", "a"], "x", "flagos")
    plan = flagos.plan()
    assert list(plan["ops"]) == sorted(plan["ops"])
    assert plan["ops"][f"{namespace}::a"] == flagos.explain(f"{namespace}::a").data
    assert json.loads(json.dumps(plan)) == plan | {
        "unmatched": [list(u) for u in plan["unmatched"]]
    }


def test_a_lock_file_notices_a_change_and_only_a_change(namespace: str, tmp_path: Path) -> None:
    op = f"{namespace}::op"
    _core.register_impl(op, "fast", "flagos")
    _core.register_impl(op, "slow", "reference")
    path = tmp_path / "plan.lock"
    assert flagos.lock(path) == path.read_text(encoding="utf-8") == flagos.lock()
    flagos.check_lock(path)
    with flagos.route({op: "reference"}):
        with pytest.raises(flagos.ConfigError) as caught:
            flagos.check_lock(path)
        assert f"{op}: fast -> slow" in str(caught.value)
    flagos.check_lock(path)


def test_a_missing_lock_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(flagos.ConfigError, match=r"nowhere\.lock"):
        flagos.check_lock(tmp_path / "nowhere.lock")


def test_fallbacks_are_counted_listed_and_refused_in_strict_mode(namespace: str) -> None:
    op = f"{namespace}::op"
    _core.register_impl(op, "x", "flagos")
    for _ in range(3):
        _core.record_fallback(op, "no kernel for int3")
    assert flagos.counters()[op] == {"calls": 0, "fallbacks": 3}
    assert {"op": op, "count": 3, "reason": "no kernel for int3"} in _core.fallbacks()
    with flagos.strict(), pytest.raises(flagos.UnsupportedError, match="no kernel for int3"):
        _core.record_fallback(op, "no kernel for int3")
    assert flagos.counters()[op]["fallbacks"] == 3
    flagos.reset_counters()
    assert op not in flagos.counters()
