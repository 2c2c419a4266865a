"""Limits from native's noise, runs of native kernels that differ, and the user's score."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torch_fl  # noqa: F401  gives torch.flagos
from flagos.cli.output import CommandError
from torch_fl_tools.accuracy import limits, native, report, score, within
from torch_fl_tools.accuracy.limits import Limits
from torch_fl_tools.accuracy.observed import Recorder
from torch_fl_tools.accuracy.results import Compared, Judged, Measured, Place, Result
from torch_fl_tools.accuracy.rounding import OtherRounding
from torch_fl_tools.accuracy.settings import Settings


def run(measure: str, *values: float) -> Compared:
    """A run whose output `x` differs by these at its calls."""
    return Compared([Measured(measure, v, Place("x", i), 1e-9) for i, v in enumerate(values)])


def limit(found: Limits, measure: str, call: int, floor: float = 1e-9) -> float:
    """The limit of a measure at a call."""
    return found.judge(Measured(measure, 1.0, Place("x", call), floor)).limit


def test_noise_is_the_largest_of_the_runs_until_the_call() -> None:
    found = Limits(4.0, [run("relative", 1, 1, 1, 1, 5, 9), run("relative", 2, 1, 1, 1, 1, 1)])
    assert [limit(found, "relative", call) for call in range(8)] == [8, 8, 8, 8, 20, 36, 36, 36]
    assert limit(found, "relative", 0, floor=11.0) == 11.0


def test_four_calls_count_at_least() -> None:
    found = Limits(4.0, [run("relative", 0, 0, 0, 3, 7)])
    assert [limit(found, "relative", call) for call in (0, 3, 4)] == [12, 12, 28]


@pytest.mark.parametrize(
    ("measure", "factor"),
    [("relative", 5), ("largest", 5), ("scalar", 15), ("perplexity", 15), ("kl_mean", 25)],
)
def test_the_multiple_is_that_of_the_measure(measure: str, factor: float) -> None:
    assert limit(Limits(5.0, [run(measure, 2.0)]), measure, 0) == 2 * factor


def test_tokens_may_differ_where_the_logits_error_explains_it() -> None:
    assert limit(Limits(4.0, [run("largest", 0.5)]), "margin", 0) == 4.0


def test_without_noise_the_floor_is_the_limit_and_zero_is_within() -> None:
    found = Limits(4.0, [])
    judged = found.judge(Measured("relative", 1e-8, Place("x", 0), 1e-9))
    assert judged.beyond and judged.ratio == pytest.approx(10)
    judged = found.judge(Measured("other", 0.0, Place("x", 0), 0.0))
    assert not judged.beyond and judged.ratio == 0


def test_the_first_call_beyond_is_told_and_the_worst_measure() -> None:
    judged = Limits(4.0, [run("relative", 1.0)]).judged(run("relative", 3.0, 5.0, 50.0))
    assert [one.place.call for one in limits.first_beyond(judged)] == [1]
    assert [one.place.call for one in limits.worst(judged)] == [2]


def test_the_report_marks_what_is_beyond() -> None:
    one = Judged("relative", 0.5, 0.001, 0.004, Place("loss", 7, "1.0"))
    lines = report.lines(Result("beyond", "said", 4.0, [one], [one], ["a", "b"]), "folder")
    assert lines[0] == "NOT AS ACCURATE: said"
    (row,) = [line for line in lines if line.startswith("relative error")]
    assert row.split("  ")[-1] == "BEYOND" and "loss, call 7 of rank 1, process 0" in row


# ------------------------------------------------------------------------------------------ native


def test_every_vendor_has_other_roundings_and_some_have_other_libraries() -> None:
    assert [one.rounding for one in native.variations("ascend", 2)] == [1, 2]
    assert [one.rounding for one in native.variations("host", 1)][-1] == 1
    assert {"OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY"} <= {
        name for one in native.variations("host", 1) for name in one.environment
    }
    assert any(flag for one in native.variations("cuda", 1) for flag in one.flags)


def test_flags_are_set_and_there_are_such(tmp_path: Path) -> None:
    names = [name for one in native.variations("cuda", 0) for name, _ in one.flags]
    assert "cuda.matmul.allow_bf16_reduced_precision_reduction" in names
    before = (torch.backends.cudnn.deterministic, torch.backends.cuda.flash_sdp_enabled())
    try:
        flags = (("cudnn.deterministic", True), ("cuda.enable_flash_sdp", False))
        within.Observing(tmp_path, Settings(flags=flags).as_dict()).torch_imported()
        assert torch.backends.cudnn.deterministic and not torch.backends.cuda.flash_sdp_enabled()
    finally:
        torch.backends.cudnn.deterministic = before[0]
        torch.backends.cuda.enable_flash_sdp(before[1])


def test_settings_are_read_as_they_were_written() -> None:
    settings = Settings(only=("a", "b"), rounding=3, flags=(("x.y", True),))
    assert Settings.read({**settings.as_dict(), "only": ["a", "b"], "flags": [["x.y", True]]}) == settings  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_other_roundings_are_within_the_unit(dtype: torch.dtype) -> None:
    x = torch.randn(64, 64, dtype=torch.float64).to(dtype).to("flagos")
    plain = [x.exp(), x @ x, x.clone().mul_(3), torch.cat([x, x])]
    with OtherRounding(1):
        other = [x.exp(), x @ x, x.clone().mul_(3), torch.cat([x, x])]
        again = x.exp()
    eps = torch.finfo(dtype).eps
    for index, most in ((0, 1.6), (1, 2.6), (2, 1.6)):
        a, b = plain[index].cpu().double(), other[index].cpu().double()
        apart = ((b - a).abs() / torch.maximum(a.abs(), a.square().mean().sqrt())).max() / eps
        assert 0.05 < float(apart) <= most
    assert torch.equal(plain[3], other[3])
    assert not torch.equal(other[0], again)  # each call has a rounding of its own
    with OtherRounding(1):
        assert torch.equal(x.exp(), other[0])
    with OtherRounding(2):
        assert not torch.equal(x.exp(), other[0])


def test_other_roundings_leave_the_programs_random_numbers_and_infinities() -> None:
    torch.manual_seed(0)
    expected = torch.randn(8, device="flagos")
    torch.manual_seed(0)
    with OtherRounding(1):
        x = torch.tensor([float("inf"), float("-inf"), float("nan"), 0.0]).to("flagos")
        kept = (x * 2).cpu()
        drawn = torch.randn(8, device="flagos")
    assert torch.equal(drawn, expected)
    assert kept[:2].tolist() == [float("inf"), float("-inf")]
    assert bool(kept[2].isnan()) and kept[3] == 0


def test_gradients_and_optimizers_round_otherwise_too() -> None:
    def weights() -> torch.Tensor:
        torch.manual_seed(0)
        model = torch.nn.Linear(8, 8).to("flagos")
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(4, 8).to("flagos")).square().mean().backward()
        optimizer.step()
        return model.weight.detach().cpu()

    plain = weights()
    with OtherRounding(1):
        other = weights()
    assert 0 < float((plain - other).abs().max()) < 1e-6


# ------------------------------------------------------------------------------------------- score


@pytest.mark.parametrize(
    ("name", "said", "fix"),
    [
        ("task", "names no function", "module:function"),
        ("no_such_module:f", "no_such_module cannot be imported", "name a module"),
        ("task:nothing", "nothing is not in the module task", "it has: fails, right, text"),
        ("task:number", "number is no function", "it has: fails, right, text"),
    ],
)
def test_a_wrong_score_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str, fix: str
) -> None:
    _task(tmp_path, monkeypatch)
    with pytest.raises(CommandError, match=said) as lines:
        score.load(name)
    assert fix in str(lines.value.hint)


@pytest.mark.parametrize(
    ("name", "said"),
    [("fails", "failed on the outputs"), ("text", "returned 'good', which is no number")],
)
def test_a_score_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    _task(tmp_path, monkeypatch)
    function = score.load(f"task:{name}")
    with pytest.raises(CommandError, match=said):
        score.of(function, name, tmp_path)


def test_a_score_gets_the_outputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _task(tmp_path, monkeypatch)
    recorder = Recorder(tmp_path, Settings())
    recorder.marked("x", torch.tensor([1.0, 2.0]))
    recorder.marked("x", torch.arange(60.0).reshape(2, 30))
    assert score.of(score.load("task:right"), "right", tmp_path) == 3.0 + 59 * 30


def _task(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "task.py").write_text(
        "number = 3\ndef right(outputs): return sum(float(x.sum()) for x in outputs['x'])\n"
        "def text(outputs): return 'good'\ndef fails(outputs): return outputs['y']\n"
    )
    monkeypatch.chdir(folder)
    monkeypatch.delitem(__import__("sys").modules, "task", raising=False)
