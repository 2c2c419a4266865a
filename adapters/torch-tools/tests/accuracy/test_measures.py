"""What a program's processes write of its outputs, and two runs of them beside each other."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import torch_fl  # noqa: F401  gives torch.flagos
from torch_fl_tools.accuracy import measures, outputs
from torch_fl_tools.accuracy.observed import Recorder
from torch_fl_tools.accuracy.results import Compared
from torch_fl_tools.accuracy.settings import Settings

NAN, INF = math.nan, math.inf
Runs = Callable[..., Compared]


class Model(torch.nn.Module):
    """Returns what it is told to."""

    def forward(self, ids: torch.Tensor, result: Any) -> Any:
        return result


@pytest.fixture
def runs(tmp_path: Path) -> Runs:
    """Compares two runs that mark values, or in which a model returns some for tokens."""

    def compare(expected: Any, actual: Any, **settings: Any) -> Compared:
        folders = []
        for which, calls in (("native", expected), ("routed", actual)):
            folder = tmp_path / which
            folder.mkdir()
            recorder = Recorder(folder, Settings(**settings))
            for call in calls if isinstance(calls, list) else [calls]:
                if isinstance(call, dict):
                    model = Model()
                    recorder.enters(model, ())
                    recorder.leaves(model, (call["ids"],), {}, call["logits"])
                else:
                    recorder.marked("x", call)
            folders.append(folder)
        found = measures.compare(*folders)
        json.dumps(found.as_dict())
        assert Compared.read(json.loads(json.dumps(found.as_dict()))) == found
        return found

    return compare


def values(found: Compared) -> dict[str, float]:
    """The largest value of each measure that is not zero."""
    return {one.measure: found.largest(one.measure) for one in found.measured if one.value}


@pytest.mark.parametrize(
    "value",
    [1.5, torch.randn(3), torch.randn(40, 50), torch.tensor([1.0, NAN, INF] * 9), torch.arange(30)],
)
def test_equal_outputs_are_equal(runs: Runs, value: Any) -> None:
    found = runs(value, value)
    assert found.equal and found.outputs == 1
    assert not found.flaws and not values(found)


@pytest.mark.parametrize(
    ("expected", "actual", "found"),
    [
        (2.0, 2.5, {"scalar": 0.25}),
        (torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5]), {"relative": 0.1, "largest": 0.5 / math.sqrt(12.5)}),
        (torch.tensor([1, 2, 3, 4]), torch.tensor([1, 2, 3, 5]), {"other": 0.25}),
        (torch.tensor([True, False]), torch.tensor([True, True]), {"other": 0.5}),
        (torch.tensor([0.0, 0.0]), torch.tensor([0.0, 0.5]), {"relative": 1 + 0.5 / math.sqrt(2), "largest": 1.5}),
    ],
)  # fmt: skip
def test_differences_are_these_numbers(
    runs: Runs, expected: Any, actual: Any, found: dict[str, float]
) -> None:
    told = runs(expected, actual)
    assert not told.equal
    assert values(told) == pytest.approx(found)


@pytest.mark.parametrize(
    ("expected", "actual", "said"),
    [
        (torch.ones(2, 3), torch.ones(3, 2), "x, call 0: float32[3, 2] instead of float32[2, 3]"),
        (torch.ones(2), torch.ones(2).double(), "x, call 0: float64[2] instead of float32[2]"),
        (torch.ones(2), torch.tensor([1.0, NAN]), "x, call 0: 1 NaN of 2 elements, otherwise than"),
        (torch.ones(2), torch.tensor([1.0, INF]), "x, call 0: 1 infinite or finite of 2"),
        (torch.tensor([1.0, NAN]), torch.ones(2), "and 1 are no NaN that are NaN there"),
        ([1.0, 2.0], [1.0], "x, call 1: the run did not come to it"),
        ([1.0], [1.0, 2.0], "x, call 1: the first run did not come to it: 1 outputs more"),
    ],
)
def test_what_cannot_be_compared_is_named(
    runs: Runs, expected: Any, actual: Any, said: str
) -> None:
    found = runs(expected, actual)
    assert said in str(found.flaws[0]) and not found.equal
    assert len(found.flaws) == 1


def logits(ids: torch.Tensor, change: Any = 0.0) -> dict[str, torch.Tensor]:
    """A call of a model with a vocabulary of 5."""
    generator = torch.Generator().manual_seed(3)
    return {"ids": ids, "logits": torch.randn(*ids.shape, 5, generator=generator) + change}


IDS = torch.tensor([[0, 1, 2, 3, 4, 0], [4, 3, 2, 1, 0, 1]])


def test_logits_have_kl_perplexity_and_tokens(runs: Runs) -> None:
    change = torch.tensor([0.0, 0.0, 1.5, 0.0, 0.0])
    found = runs(logits(IDS), logits(IDS, change))
    n, c = logits(IDS)["logits"].double(), logits(IDS, change)["logits"].double()
    kl = (n.softmax(-1) * (n.log_softmax(-1) - c.log_softmax(-1))).sum(-1)
    told = values(found)
    assert told["kl_mean"] == pytest.approx(float(kl.mean()))
    assert told["kl_max"] == pytest.approx(float(kl.max()))
    losses = [
        torch.nn.functional.cross_entropy(one[:, :-1].reshape(-1, 5), IDS[:, 1:].reshape(-1))
        for one in (n, c)
    ]
    assert told["perplexity"] == pytest.approx(abs(float((losses[1] - losses[0]).exp()) - 1))
    other = n.argmax(-1) != c.argmax(-1)
    assert found.tokens == 12 and found.others == int(other.sum()) > 0
    top = n.topk(2).values
    margin = (top[..., 0] - top[..., 1])[other].max() / n.square().mean().sqrt()
    assert told["margin"] == pytest.approx(float(margin))


def test_what_follows_other_tokens_is_not_compared(runs: Runs) -> None:
    prompt, one, two = IDS, torch.tensor([[1], [1]]), torch.tensor([[2], [1]])
    native = [logits(prompt), logits(one), logits(one), logits(prompt)]
    routed = [logits(prompt, 1e-6), logits(two), logits(one), logits(prompt)]
    found = runs(native, routed)
    assert not found.flaws
    # The model begins anew with the last call.
    assert (found.outputs, found.apart, found.equal) == (2, 2, False)


def test_other_tokens_after_equal_outputs_are_a_flaw(runs: Runs) -> None:
    found = runs(
        [logits(IDS), logits(torch.tensor([[1]]))], [logits(IDS), logits(torch.tensor([[2]]))]
    )
    assert "Model, call 1: the model was given other tokens" in str(found.flaws[0])


@pytest.mark.parametrize("shape", [(5000,), (300, 700), (3, 11, 4097)])
def test_large_outputs_are_kept_in_part_and_compared_whole(
    runs: Runs, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    expected = torch.randn(shape)
    actual = expected.clone()
    actual.view(-1)[1500] += 1e-2  # in none of the rows that are kept
    found = runs(expected, actual, tensor_bytes=8192)
    assert not found.equal and found.largest("relative") > 0
    kept = sum(path.stat().st_size for path in (tmp_path / "native" / "values").iterdir())
    assert kept < 8192 + 16 * (expected.numel() // 1024 + 2) + 4096
    (rows,) = outputs.named(tmp_path / "native")["x"]
    assert rows.nbytes <= 8192


def test_a_process_keeps_no_more_than_it_may(runs: Runs, tmp_path: Path) -> None:
    several = [torch.randn(100, 100) for _ in range(30)]
    found = runs(several, several, run_bytes=200_000)
    assert found.equal and found.outputs == 30
    kept = sum(path.stat().st_size for path in (tmp_path / "native" / "values").iterdir())
    assert kept < 200_000 + 30 * 8_000


def test_only_what_is_asked_for_is_kept(runs: Runs, tmp_path: Path) -> None:
    runs([{"ids": IDS, "logits": {"a": 1.0, "b": 2.0}}], [], only=("*.b",))
    assert list(outputs.named(tmp_path / "native")) == ["Model.b"]


def test_a_model_is_observed_and_its_parts_are_not(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, Settings())
    inner, outer = Model(), torch.nn.Sequential()
    recorder.enters(outer, ())
    recorder.enters(inner, ())
    recorder.leaves(inner, (), {}, torch.ones(2))
    recorder.leaves(outer, (), {}, torch.zeros(2))
    recorder.enters(inner, ())
    recorder.leaves(inner, (), {}, None)  # it raised an error
    recorder.watching(lambda *_: None)(torch.tensor(3.0))
    recorder.watching(lambda *_: None)(torch.ones(2), torch.ones(2))
    found = outputs.named(tmp_path)
    assert {name: [one.tolist() for one in calls] for name, calls in found.items()} == {
        "Sequential": [[0.0, 0.0]],
        "loss": [3.0],
    }
