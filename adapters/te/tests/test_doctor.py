"""TransformerEngine's part of `flagos doctor`."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from flagos.doctor.check import Status
from te_fl.doctor import checks, remedy


def test_a_transformer_engine_that_needs_a_newer_cublas_is_told_apart() -> None:
    missing = "undefined symbol: cublasLtGroupedMatrixLayoutInit_internal"
    assert "newer cuBLAS" in remedy(f"OSError: libtransformer_engine.so: {missing}")
    assert "reinstall" in remedy("OSError: libtransformer_engine.so: undefined symbol: other")


@pytest.mark.skipif(
    find_spec("transformer_engine") is not None, reason="TransformerEngine is there"
)
def test_asking_for_a_plugin_without_transformer_engine_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NVTE_PLUGIN", "te_fl")
    (check,) = checks(120.0)
    assert check.name == "transformer_engine" and check.status is Status.FAIL
    assert "NVTE_PLUGIN=te_fl is set" in check.detail


def test_a_plugin_that_the_variable_names_and_nothing_finds_is_a_problem() -> None:
    report = {}
    for module in ("no_such_plugin", "te_fl"):
        with pytest.MonkeyPatch.context() as variables:
            variables.setenv("TE_FL_PLUGIN_MODULES", module)
            (report[module],) = (c for c in checks(120.0) if c.name == "TE_FL_PLUGIN_MODULES")
    assert report["te_fl"].status is Status.OK
    broken = report["no_such_plugin"]
    assert broken.status is Status.FAIL and "No module named 'no_such_plugin'" in broken.detail
