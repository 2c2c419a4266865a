"""Attention of DTensor and of context parallelism. The program of the ranks is `ranks/attention.py`."""

from __future__ import annotations

import re

import pytest

from adapters.torch.tests.launch import launch_all_well

pytestmark = pytest.mark.host


def test_split_batches_and_heads_are_those_of_one_device():
    for output in launch_all_well("attention.py", "flagos", "flagos", "split", "local", ranks=2):
        cases = re.search(r"split (\d+)", output)
        assert cases is not None and int(cases.group(1)) > 600


def test_a_mesh_of_two_dimensions():
    launch_all_well("attention.py", "flagos", "flagos", "square", ranks=4)


def test_a_split_sequence_within_context_parallel():
    checks = ("ring", "compiled", "refusals", "controls", "unknown")
    for output in launch_all_well("attention.py", "flagos", "flagos", *checks, ranks=2):
        assert "passed" in output


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_compiled_tensor_parallelism_is_one_device(backend):
    for output in launch_all_well("tensor_parallel.py", backend, ranks=2):
        assert "passed" in output
