"""vLLM's graphs of the pieces between attention, over a simulated capture on the host (``programs/graphs.py``)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vllm_flagos import releases

pytestmark = pytest.mark.vllm

Report = Callable[..., dict[str, Any]]
SIZES = [1, 2, 4, 8, 16, 32, 64]
# vLLM cuts pieces out of what torch.compile traces, or ends a graph at attention while it captures.
CUT = {
    "enforce_eager": False,
    "compilation_config": {
        "mode": 3,
        "backend": "eager",
        "cudagraph_mode": "PIECEWISE",
        "cudagraph_capture_sizes": SIZES,
    },
}
BROKEN = {
    "enforce_eager": False,
    "compilation_config": {"cudagraph_mode": "PIECEWISE", "cudagraph_capture_sizes": SIZES},
}
SIMULATED = {"SIMULATED_GRAPHS": "1"}
FORMS = {
    "cut": (CUT, SIMULATED),
    "broken": (BROKEN, {**SIMULATED, "VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}),
}


@pytest.fixture(autouse=True)
def _tried(release: releases.Release) -> None:
    if release.minor != "0.26":
        pytest.skip("not tried with this release")


def _every_step(found: dict[str, Any], pieces: int) -> None:
    """Every size is captured at the start, and every step, those with prompts too, is a run of a graph's pieces."""
    assert found["graphs"]["captured"] == len(SIZES) * pieces
    assert found["graphs"]["replayed"] >= 40 * pieces


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["dense", "experts"])
def test_pieces(
    report: Report, models: Path, expected: dict[str, Any], name: str, form: str
) -> None:
    options, variables = FORMS[form]
    found = report("greedy.py", models / name, options, **variables)
    assert found["tokens"] == expected[name]
    _every_step(found, pieces=4)  # of three layers


def test_pieces_with_adapters(report: Report, models: Path, expected: dict[str, Any]) -> None:
    options, variables = FORMS["broken"]
    found = report("lora.py", models, options, **variables)
    assert found["alone"] == [expected[name] for name in ("dense", "adapter1", "adapter2")]
    assert found["mixed"] == found["alone"]
    _every_step(found, pieces=8)  # with adapters, and without


def test_pieces_of_latent_attention(report: Report, tmp_path: Path) -> None:
    options, variables = FORMS["broken"]
    found = report("latent.py", "odd", tmp_path, options, **variables)
    assert found["tokens"] == found["again"] == found["expected"]
    _every_step(found, pieces=4)


def test_pieces_of_layers_with_states(report: Report, tmp_path: Path) -> None:
    options, variables = FORMS["cut"]
    found = report("hybrid.py", "mamba2", tmp_path, options, **variables)
    assert found["tokens"] == found["again"] == found["expected"]
    _every_step(found, pieces=4)


def test_graphs_that_end_at_attention_alone_are_refused_for_layers_with_states(
    report: Report, tmp_path: Path
) -> None:
    options, variables = FORMS["broken"]
    with pytest.raises(pytest.fail.Exception, match="VLLM_USE_BREAKABLE_CUDAGRAPH: such graphs"):
        report("hybrid.py", "mamba2", tmp_path, options, **variables)
