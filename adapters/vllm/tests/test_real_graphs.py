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


@pytest.mark.parametrize(
    ("kind", "form", "pieces"),
    [
        ("mamba2", "cut", 4),
        ("mamba2", "broken", 4),
        ("jamba", "broken", 5),
        ("qwen3_next", "broken", 5),
    ],
)
def test_pieces_of_layers_with_states(
    report: Report, release: releases.Release, tmp_path: Path, kind: str, form: str, pieces: int
) -> None:
    options, variables = FORMS[form]
    if form == "broken" and not release.states_end_graphs:
        with pytest.raises(pytest.fail.Exception, match="USE_BREAKABLE_CUDAGRAPH: such graphs"):
            report("hybrid.py", kind, tmp_path, options, **variables)
        return
    found = report("hybrid.py", kind, tmp_path, options, **variables)
    assert found["tokens"] == found["again"] == found["expected"]
    _every_step(found, pieces)
