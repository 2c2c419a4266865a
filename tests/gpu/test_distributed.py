"""Collectives over NVIDIA devices, one process a device. Most need two devices."""

from __future__ import annotations

import re

import pytest
import torch

from adapters.torch.tests.launch import launch, launch_all_well

pytestmark = pytest.mark.cuda
two_devices = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two NVIDIA devices")

# NCCL takes ranks of hosts of other names for neighbours over the network, though they share one device.
ON_ONE_DEVICE = {
    "NCCL_HOSTID": "host{rank}",
    "NCCL_NET": "Socket",
    "NCCL_SOCKET_IFNAME": "lo",
}


@two_devices
def test_collectives_over_nccl() -> None:
    for output in launch_all_well("engine.py", "collectives", ranks=2):
        assert "well" in output


@two_devices
def test_gradients_are_exact_when_communication_is_late() -> None:
    """With a control: futures that complete on the compute stream give wrong ones."""
    for output in launch_all_well("engine.py", "gradients", ranks=2):
        assert "well" in output


@two_devices
def test_everything_else_of_torch_distributed() -> None:
    launch_all_well("api.py", "cpu", ranks=2)


def test_sparse_gradients_and_batch_norm_over_the_ranks() -> None:
    parts = "sparse", "normalization_over_the_ranks", "by_name"
    apart = ON_ONE_DEVICE if torch.cuda.device_count() < 2 else {}
    launch_all_well("api.py", "flagos", *parts, ranks=2, **apart)


@two_devices
def test_training_is_that_of_one_process(tmp_path) -> None:
    launch_all_well("training.py", "flagos", "all", str(tmp_path), ranks=2)


@two_devices
def test_a_rank_that_is_missing_is_told_and_the_process_ends() -> None:
    """Results that come after the timeout cannot be trusted, so that the process is ended."""
    waiting, _ = launch("faults.py", "missing", "flagos", ranks=2, timeout=60)
    assert waiting.status == -6, waiting.output
    assert re.search(r"all_reduce.*not done within 3000 ms", waiting.output), waiting.output
    assert "its results cannot be trusted" in waiting.output
