"""Tests of the backend `flagos` of torch.distributed that take too long for CI: `make test-comm`.

The name of this file keeps it out of `make test-torch`.
"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from adapters.torch.tests.launch import HERE, free_port, launch, launch_all_well
from adapters.torch.tests.test_distributed import check_elastic

pytestmark = pytest.mark.host


@pytest.mark.parametrize("device", ["flagos", "cpu"])
def test_collectives_of_four_ranks_do_what_gloo_does(device):
    for output in launch_all_well("collectives.py", device, ranks=4, timeout=900):
        assert int(re.findall(r"checked (\d+)", output)[0]) > 1000


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_groups_that_share_ranks_do_what_gloo_does_in_any_order(ranks):
    for output in launch_all_well("groups.py", "flagos", "300", ranks=ranks, timeout=600):
        assert "calls of" in output


def test_torchrun_starts_again_and_goes_on(tmp_path):
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--max-restarts=1", f"--master-port={free_port()}"]
    command += [str(HERE / "ranks" / "elastic.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "started at 5" in done.stdout
    check_elastic(tmp_path)


def test_a_rank_that_is_stopped_for_five_seconds_is_waited_for():
    ends = launch("faults.py", "stopped", "flagos", ranks=2, STOPPED_SECONDS="5")
    waited = re.search(r"went on, having waited for ([\d.]+) s", ends[0].output)
    assert waited is not None and float(waited.group(1)) > 4, ends[0].output


def test_a_group_can_be_made_and_destroyed_a_hundred_times():
    for output in launch_all_well("lives.py", "100", ranks=3):
        assert "100 lives" in output
