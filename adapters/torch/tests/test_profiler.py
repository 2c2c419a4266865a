"""torch.profiler."""

from __future__ import annotations

import json

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def work() -> torch.Tensor:
    x = torch.randn(64, 64, device="flagos")
    with record_function("the part that matters"):
        y = (x @ x).relu()
    return y.sum()


def test_operators_have_rows():
    with profile(activities=ACTIVITIES) as recorded:
        work()
    rows = {row.key: row for row in recorded.key_averages()}
    assert {"aten::mm", "aten::relu", "the part that matters"} <= set(rows)
    assert rows["aten::mm"].count == 1
    assert recorded.profiler.use_device == "flagos"


def test_the_table_names_the_device():
    with profile(activities=ACTIVITIES) as recorded:
        work()
    assert "aten::mm" in recorded.key_averages().table(sort_by="self_cpu_time_total")


def test_time_on_the_device_is_attributed():
    with profile(activities=ACTIVITIES) as recorded:
        work()
    rows = {row.key: row for row in recorded.key_averages()}
    assert rows["aten::mm"].device_time_total > 0


def test_time_of_a_part_is_at_most_that_of_the_whole():
    with profile(activities=ACTIVITIES) as recorded:
        work()
    rows = {row.key: row for row in recorded.key_averages()}
    assert rows["aten::mm"].self_device_time_total <= rows["aten::matmul"].device_time_total
    assert "FLAGOS" in recorded.key_averages().table(sort_by="device_time_total")


def test_memory_is_attributed_to_the_device():
    with profile(activities=ACTIVITIES, profile_memory=True) as recorded:
        kept = work()
    rows = {row.key: row for row in recorded.key_averages()}
    assert rows["aten::mm"].device_memory_usage >= 64 * 64 * 4
    del kept


def test_shapes_and_stacks():
    with profile(activities=ACTIVITIES, record_shapes=True, with_stack=True) as recorded:
        work()
    rows = [
        row for row in recorded.key_averages(group_by_input_shape=True) if row.key == "aten::mm"
    ]
    assert rows[0].input_shapes == [[64, 64], [64, 64]]


def test_chrome_trace(tmp_path):
    path = tmp_path / "trace.json"
    with profile(activities=ACTIVITIES) as recorded:
        work()
    recorded.export_chrome_trace(str(path))
    names = {event.get("name") for event in json.loads(path.read_text())["traceEvents"]}
    assert {"aten::mm", "the part that matters"} <= names


def test_schedules():
    ready = []
    with profile(
        activities=ACTIVITIES,
        schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda p: ready.append(len(p.events())),
    ) as recorded:
        for _ in range(5):
            work()
            recorded.step()
    assert len(ready) == 1 and ready[0] > 0


def test_autograd_profiler_by_device_name():
    with torch.autograd.profiler.profile(use_device="flagos") as recorded:
        work()
    assert any(event.name == "aten::mm" for event in recorded.function_events)
