"""torch.distributed on a vendor's library: two ranks on two example chips, whose collectives go through the host."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from adapters.torch.tests.launch import HERE

pytestmark = pytest.mark.needs("compiler")


def torchrun(chip, program, *arguments, **variables):
    """Runs a program of `ranks/` on two example chips."""
    environment = {name: value for name, value in os.environ.items() if "FLAGOS_" not in name}
    environment |= {"FLAGOS_VENDOR": "example", "FLAGOS_VENDOR_PATH": str(chip)}
    # Ranks share the processors: threads of each would only get in each other's way.
    environment |= {"OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = subprocess.run(
        [*command, str(HERE / "ranks" / program), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kernels", ["0", "1"])
def test_gradients_are_those_of_one_process_on_the_cpu(chip, kernels):
    torchrun(chip, "gradients.py", "example", EXAMPLE_CHIP_KERNELS=kernels)


@pytest.mark.slow
def test_training_is_that_of_one_process(chip, tmp_path):
    torchrun(chip, "training.py", "flagos", "all", str(tmp_path))
    # The checkpoint of full training is read again, into shards.
    torchrun(chip, "training.py", "flagos", "load", str(tmp_path))
