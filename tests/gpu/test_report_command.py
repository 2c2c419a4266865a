"""`flagos report` where torch.profiler has the device's timeline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.cuda

MULTIPLY = """
import time, torch
a = torch.randn(2048, 2048, device="flagos")
def multiply(times):
    for _ in range(times):
        torch.mm(a, a)
    torch.flagos.synchronize()
multiply(20)
"""


def report(text: str, *options: str) -> dict[str, Any]:
    """The one process of a program's report."""
    command = [sys.executable, "-m", "flagos", "report", "--json", *options, "--"]
    kept = {name: value for name, value in os.environ.items() if not name.startswith("FLAGOS_")}
    ended = subprocess.run(
        [*command, sys.executable, "-c", MULTIPLY + text],
        env=kept,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    (process,) = json.loads(ended.stdout)["processes"]
    assert process["problems"] == []
    found: dict[str, Any] = process
    found["mm"] = next(row for row in found["operators"] if row["op"] == "aten::mm")
    return found


def test_kernels_are_of_the_operators_that_launched_them() -> None:
    process = report("")
    mm = process["mm"]
    assert process["device_time"]["why_not"] is None
    assert (mm["calls"], mm["device_calls"]) == (20, 20)
    # At least the time that no device is faster than: 2 * 2048^3 operations at 1e15 a second.
    assert mm["device_ns"] >= 20 * 17_000
    assert process["operators"][0]["op"] == "aten::mm"
    assert process["memory"][0]["peak_allocated"] >= 2 * 2048 * 2048 * 4


def test_nothing_is_collected_that_is_not_wanted() -> None:
    process = report("", "--device-seconds", "0")
    assert process["device_time"]["why_not"] == "--device-seconds is 0"
    assert process["mm"]["device_ns"] is None


def test_collecting_ends_while_the_program_goes_on_and_captures_a_graph() -> None:
    text = """
began = time.monotonic()
while time.monotonic() - began < 3:
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        torch.mm(a, a)
    graph.replay()
    multiply(50)
"""
    process = report(text, "--device-seconds", "0.5")
    assert 0.5 <= process["device_time"]["seconds"] < 3
    assert 0 < process["mm"]["device_calls"] < process["mm"]["calls"]


def test_a_program_may_profile_itself() -> None:
    text = """
with torch.profiler.profile() as profile:
    multiply(7)
(mm,) = [one for one in profile.key_averages() if one.key == "aten::mm"]
assert mm.count == 7 and mm.device_time_total > 0
multiply(3)
"""
    process = report(text)
    assert (process["mm"]["calls"], process["mm"]["device_calls"]) == (30, 20)
