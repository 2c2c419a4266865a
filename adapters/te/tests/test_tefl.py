"""Over real checkouts of TransformerEngine-FL: they discover us, and their own suites judge us.

``TEFL_PATH`` names the checkouts, separated like a PATH. Nothing of them has to be built or installed.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.te.tests.processes import ROOT, run

CHECKOUTS = [Path(path) for path in os.environ.get("TEFL_PATH", "").split(os.pathsep) if path]

pytestmark = pytest.mark.tefl


@pytest.fixture(params=CHECKOUTS or [None], ids=lambda path: path.name if path else "none")
def checkout(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    assert (path / "transformer_engine" / "plugin" / "core").is_dir(), f"{path} is no checkout"
    return path


def metadata(folder: Path, name: str, version: str, entry_points: str = "") -> Path:
    """A distribution as importlib.metadata finds it."""
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    (info / "entry_points.txt").write_text(entry_points)
    return folder


def in_checkout(
    checkout: Path, tmp_path: Path, program: str, *paths: Path, **variables: str
) -> str:
    version = (checkout / "build_tools" / "VERSION.txt").read_text().strip()
    site = metadata(tmp_path / "te", "transformer_engine", version)
    # Its libraries are not there: this is how it imports without them.
    return run(program, checkout, site, *paths, NVTE_PROJECT_BUILDING="1", **variables)


LISTED = """
    from transformer_engine.plugin.core import get_manager, get_registry
    manager, registry = get_manager(), get_registry()
    manager.ensure_initialized()
    ours = [op for op in registry.list_operators() if registry.get_implementation(op, "default.flagos_rs")]
    from te_fl.operators import OPERATORS, QUESTIONS
    assert set(ours) == OPERATORS.keys() | QUESTIONS.keys(), ours
    impl = registry.get_implementation("rmsnorm_fwd", "default.flagos_rs")
    assert type(impl).__module__.startswith("transformer_engine.")
    # Its own references stay under the id of ours, which are there for the operators without one.
    references = {op: registry.get_implementation(op, "reference.torch").fn for op in OPERATORS}
    assert references["rmsnorm_fwd"].__module__.startswith("transformer_engine.")
    import te_fl
    te_fl.te_fl_register(registry)  # again
    print("chosen", manager.get_selected_impl_id("rmsnorm_fwd"))
"""


def test_it_discovers_us_by_the_variable(checkout: Path, tmp_path: Path) -> None:
    out = in_checkout(checkout, tmp_path, LISTED, TE_FL_PLUGIN_MODULES="te_fl")
    assert "chosen default.flagos_rs" in out and "Duplicate" not in out


def test_it_discovers_us_by_our_entry_point(checkout: Path, tmp_path: Path) -> None:
    project = (ROOT / "adapters" / "te" / "pyproject.toml").read_text()
    line = 'flagos_rs = "te_fl:te_fl_register"'
    assert f'[project.entry-points."te_fl.plugin"]\n{line}' in project
    entry = "[te_fl.plugin]\n" + line.replace('"', "") + "\n"
    site = metadata(tmp_path / "ours", "te_fl", "0.0", entry)
    # A plugin found in both ways is registered once.
    out = in_checkout(checkout, tmp_path, LISTED, site, TE_FL_PLUGIN_MODULES="te_fl")
    assert "chosen default.flagos_rs" in out and "Duplicate" not in out
    out = in_checkout(checkout, tmp_path / "alone", LISTED, site)
    assert "chosen default.flagos_rs" in out


SUITES = """
    import contextlib, importlib, io, os, sys
    import torch
    import transformer_engine
    from transformer_engine.plugin.core import OpImpl, BackendImplKind, get_manager, get_registry
    get_manager().ensure_initialized()
    registry = get_registry()
    # A wrong implementation of everything, which the same suites must catch.
    from te_fl.operators import OPERATORS
    def wrong(function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            for tensors in (kwargs.get("tensor_lists") or []):
                for tensor in tensors:
                    if tensor.is_floating_point(): tensor.data.add_(1)
            for out in (args[4],) if len(args) > 4 and isinstance(args[4], list) else ():
                for tensor in out: tensor.add_(1)
            if isinstance(result, type): raise RuntimeError("wrong")
            if isinstance(result, torch.Tensor): return result + 1
            if isinstance(result, (list, tuple)):
                return tuple(r + 1 if isinstance(r, torch.Tensor) else r for r in result)
            return result
        return call
    # Our references, beside those of TransformerEngine-FL.
    from te_fl import reference
    for op, function in OPERATORS.items():
        formula = reference.OPERATORS[op]
        registry.register_impl(OpImpl(op, "default.plain", BackendImplKind.DEFAULT, formula))
        registry.register_impl(OpImpl(op, "default.wrong", BackendImplKind.DEFAULT, wrong(function)))
    folder = os.path.join(os.path.dirname(transformer_engine.__file__), "plugin", "tests")
    sys.path.insert(0, folder)
    for name, cls in [("activations", "ActivationTests"), ("normalization", "NormalizationTests"),
                      ("operations", "OperationsTests"), ("softmax", "SoftmaxTests"),
                      ("optimizer", "OptimizerTests"), ("flash_attention", "FlashAttentionTests"),
                      ("te_general_grouped", "grouped_gemmTests")]:
        if not os.path.exists(os.path.join(folder, f"test_{name}.py")):
            continue
        counts = []
        for backend in ("flagos_rs", "plain", "wrong"):
            suite = getattr(importlib.import_module(f"test_{name}"), cls)(device="cpu")
            assert backend in suite.backends
            suite.backends = [backend]
            out = io.StringIO()
            # Their inputs are random, and their tolerances tight: the same ones every time.
            torch.manual_seed(0)
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
                suite.run_all_tests()
            counts.append((suite.passed, suite.failed, suite.skipped))
            if backend != "wrong" and suite.failed: print(out.getvalue())
        (passed, failed, skipped), plain, (_, caught, _) = counts
        print("suite", name, passed, failed, skipped, caught, *plain)
"""


def test_its_numeric_suites_pass_for_our_operators_and_fail_for_wrong_ones(
    checkout: Path, tmp_path: Path
) -> None:
    out = in_checkout(
        checkout, tmp_path, SUITES, TE_FL_PLUGIN_MODULES="te_fl", TEFL_LOG_LEVEL="ERROR"
    )
    suites = [line.split()[1:] for line in out.splitlines() if line.startswith("suite ")]
    assert len(suites) >= 6, out
    for name, *counts in suites:
        passed, failed, skipped, caught, *plain = map(int, counts)
        assert plain == [passed, failed, skipped], (name, counts, out)
        assert passed > 0 and (failed, skipped) == (0, 0) and caught > 0, (name, counts, out)


POLICY = """
    import sys, unittest
    import te_fl.core
    # The tests import our module under TransformerEngine-FL's name.
    for name in ("transformer_engine", "transformer_engine.plugin"):
        sys.modules[name] = type(sys)(name)
    sys.modules["transformer_engine.plugin.core"] = te_fl.core
    for name in ("policy", "types", "manager", "registry"):
        sys.modules["transformer_engine.plugin.core." + name] = __import__("te_fl.core." + name, fromlist=["x"])
    sys.path.insert(0, {folder!r})
    result = unittest.TextTestRunner(stream=sys.stdout).run(
        unittest.defaultTestLoader.loadTestsFromName("test_policy"))
    assert result.wasSuccessful() and not result.skipped
    print("policy tests", result.testsRun)
"""


def test_its_policy_tests_pass_over_te_fl_core(checkout: Path) -> None:
    folder = checkout / "transformer_engine" / "plugin" / "tests"
    if not (folder / "test_policy.py").exists():
        pytest.skip("this version has no policy tests")
    out = run(POLICY.format(folder=str(folder)))
    assert int(out.rsplit("policy tests ", 1)[1]) > 30
