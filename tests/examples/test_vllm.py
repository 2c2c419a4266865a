"""The example for vLLM, where vLLM is installed (`make test-vllm`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.examples.page import read


@pytest.mark.vllm
@pytest.mark.host
def test_it_prints_what_the_page_says(tmp_path: Path) -> None:
    assert read(
        "serve_vllm.py",
        tmp_path,
        PYTHONPATH=os.environ["VLLM_PATH"],
        VLLM_NO_USAGE_STATS="1",
        VLLM_CACHE_ROOT=str(tmp_path / "cache"),
    )
