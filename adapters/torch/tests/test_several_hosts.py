"""Several hosts, made of network namespaces of this one. Needs the right to make them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from adapters.torch.tests.launch import launch
from adapters.torch.tests.simulated import simulated_libraries

pytestmark = pytest.mark.host

CABLE = "cable"


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


@pytest.fixture
def hosts():
    """The names of two network namespaces that are joined by a cable, 10.77.0.1 and 10.77.0.2."""
    if shutil.which("ip") is None:
        pytest.skip("network namespaces cannot be made here: there is no command ip")
    names = [f"flagos-{os.getpid()}-{host}" for host in range(2)]
    try:
        for name in names:
            ip("netns", "add", name)
        ends = ["type", "veth", "peer", "name", CABLE, "netns", names[1]]
        ip("-n", names[0], "link", "add", CABLE, *ends)
        for host, name in enumerate(names):
            ip("-n", name, "address", "add", f"10.77.0.{host + 1}/24", "dev", CABLE)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", CABLE, "up")
    except OSError as error:
        pytest.skip(f"network namespaces cannot be made here: {error}")
    else:
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def test_two_hosts_work_together_until_the_cable_is_cut_and_when_it_is_mended(hosts):
    library = simulated_libraries()["new"]
    variables = {"FLAGOS_COMM_ENGINE": "nccl", "FLAGOS_COMM_LIBRARY": str(library)}
    for rank, end in enumerate(launch("hosts.py", *hosts, ranks=2, **variables)):
        assert end.status == 0, end.output
        report = re.search(
            rf"flagos after ([\d.]+) s: flagos:all_reduce \(sequence 2, 1000 elements\) in group \S+ on "
            rf"rank {rank}: not done within 3000 ms",
            end.output,
        )
        assert report is not None and 2.5 < float(report.group(1)) < 60, end.output
        assert re.search(r"gloo after [\d.]+ s: ", end.output), end.output
        assert "went on after the cable was mended" in end.output
