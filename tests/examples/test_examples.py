"""Each example prints what the page says, and names what is missing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.page import EXAMPLES, ROOT, read

SEAM = ROOT / "adapters" / "lightx2v" / "tests" / "seam"
#: They need what this environment need not have: test_flaggems.py, test_vllm.py, test_lightx2v.py.
ELSEWHERE = {"flaggems_route.py", "serve_vllm.py", "lightx2v_block.py"}
#: Example → a package that it needs, and what the error says.
NEEDED = {
    "serve_vllm.py": ("vllm", "needs vLLM"),
    "flaggems_route.py": ("flag_gems", "needs FlagGems: pip install --no-deps flag_gems"),
    "triton_operator.py": ("triton", "needs Triton: pip install triton"),
    "transformers_trainer.py": ("transformers", "pip install transformers"),
    "lightning_trainer.py": ("lightning", "needs Lightning: pip install lightning"),
    "te_layer.py": ("te_fl.core", "needs te-fl: pip install"),
    "lightx2v_block.py": ("lightx2v", "needs LightX2V (no module lightx2v"),
}


@pytest.fixture(autouse=True)
def adapter() -> None:
    """The torch adapter."""
    pytest.importorskip("torch_fl", reason="the torch adapter is not installed")


@pytest.mark.slow
@pytest.mark.needs("compiler")
@pytest.mark.parametrize("example", sorted(set(EXAMPLES) - ELSEWHERE))
def test_an_example_prints_what_the_page_says(example: str, tmp_path: Path) -> None:
    if example == "lightning_trainer.py":
        pytest.importorskip("lightning")
    assert read(example, tmp_path)


@pytest.mark.slow
def test_the_one_for_lightx2v_over_a_double(tmp_path: Path) -> None:
    (tmp_path / "flagos").mkdir()
    (tmp_path / "flagos" / "LightX2V").symlink_to(SEAM)
    assert read("lightx2v_block.py", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("example", NEEDED)
def test_what_is_missing_is_named(example: str) -> None:
    package, named = NEEDED[example]
    # What is None in sys.modules cannot be imported.
    program = f"import sys, runpy; sys.modules[{package!r}] = None; runpy.run_path(sys.argv[1], run_name='__main__')"
    path = str(ROOT / "examples" / example)
    done = subprocess.run(
        [sys.executable, "-c", program, path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 1 and named in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_another_result_is_not_what_the_page_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the comparison sees what an example prints."""
    from tests.examples import page

    right = "before a call is declined: {'calls': 2"
    wrong = {name: text.replace(right, right[:-1] + "3") for name, text in page.SECTIONS.items()}
    monkeypatch.setattr(page, "SECTIONS", wrong)
    with pytest.raises(AssertionError, match="The page says"):
        read("python_operator.py", tmp_path)
