"""The allocator's statistics, limits and errors."""

from __future__ import annotations

import gc
import os

import pytest
import torch
from torch import flagos

from flagos import UnsupportedError, _core

MIB = 1 << 20
# What an allocation of whole MiB may count for: Ascend adds 32 bytes and rounds to 512.
ROUNDING = range(1024)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    flagos.synchronize()
    gc.collect()


def test_allocated_follows_tensors():
    before = flagos.memory_allocated()
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="flagos")
    assert flagos.memory_allocated() - before - 4 * MIB in ROUNDING
    del x
    assert flagos.memory_allocated() == before


def test_arguments_of_calls_are_freed_with_their_last_tensor():
    """A call borrows the memory of what it reads, but not of what it also writes, which it may move."""
    x = torch.randn(64, 64, device="flagos", requires_grad=True)
    # A vendor's library takes memory for itself at its first call.
    torch.nn.functional.linear(x, x, x[0]).sum().backward()
    del x
    gc.collect()
    before = flagos.memory_allocated()
    x = torch.randn(64, 64, device="flagos", requires_grad=True)
    for _ in range(3):
        (torch.nn.functional.linear(x, x, x[0]).relu() ** 2).sum().backward()
        small = torch.empty(0, device="flagos")
        with torch.no_grad():
            torch.add(x, x, out=small)  # moves it
            torch.mul(small, small, out=small)  # read before it is written
            torch.cat([small, x])
            torch._foreach_add_([small, x, small], 1)
        with pytest.raises(RuntimeError, match="size"):
            torch.add(small, torch.ones(5, device="flagos"))
        assert torch.equal(small.cpu(), small.clone().cpu())
    assert flagos.memory_allocated() > before
    del x, small
    gc.collect()
    assert flagos.memory_allocated() == before


def test_reserved_keeps_what_was_freed_until_the_cache_is_emptied():
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="flagos")
    held = flagos.memory_reserved()
    del x
    assert flagos.memory_reserved() == held
    flagos.empty_cache()
    assert flagos.memory_reserved() <= held - 64 * MIB


def test_peak():
    flagos.reset_peak_memory_stats()
    base = flagos.memory_allocated()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="flagos")
    del x
    assert flagos.max_memory_allocated() >= base + 8 * MIB
    assert flagos.max_memory_reserved() >= flagos.memory_reserved()
    flagos.reset_peak_memory_stats()
    assert flagos.max_memory_allocated() == flagos.memory_allocated()


def test_accumulated_statistics_restart():
    torch.empty(MIB, device="flagos")
    assert flagos.memory_stats()["allocated_bytes.all.allocated"] > 0
    flagos.reset_accumulated_memory_stats()
    assert flagos.memory_stats()["allocated_bytes.all.allocated"] == 0


@pytest.mark.parametrize("pool", ["all", "small_pool", "large_pool"])
@pytest.mark.parametrize("metric", ["current", "peak", "allocated", "freed"])
@pytest.mark.parametrize(
    "statistic", ["allocated_bytes", "reserved_bytes", "active_bytes", "segment"]
)
def test_statistics_have_torchs_names(statistic, metric, pool):
    assert flagos.memory_stats()[f"{statistic}.{pool}.{metric}"] >= 0


def test_nested_statistics_are_the_same():
    nested, flat = flagos.memory_stats_as_nested_dict(), flagos.memory_stats()
    assert nested["allocated_bytes"]["all"]["current"] == flat["allocated_bytes.all.current"]


def test_generic_functions_agree():
    x = torch.empty(MIB, device="flagos")
    assert torch.accelerator.memory_allocated() == flagos.memory_allocated() > 0
    assert torch.accelerator.memory_reserved() == flagos.memory_reserved()
    assert torch.accelerator.memory_stats().items() <= flagos.memory_stats().items()
    del x


def test_statistics_have_the_names_of_pytorch_plugin_fl():
    before = flagos.memory_stats()
    x = torch.empty(MIB, device="flagos")
    stats = flagos.memory_stats()
    assert stats["allocated_bytes"] == flagos.memory_allocated() > 0
    assert stats["reserved_bytes"] == flagos.memory_reserved()
    assert stats["peak_allocated_bytes"] == flagos.max_memory_allocated()
    assert stats["peak_reserved_bytes"] == flagos.max_memory_reserved()
    assert stats["num_alloc_calls"] == before["num_alloc_calls"] + 1
    del x
    assert flagos.memory_stats()["num_free_calls"] == before["num_free_calls"] + 1
    assert stats["num_device_malloc"] >= stats["num_device_free"] >= 0
    assert stats["num_alloc_retries"] == before["num_alloc_retries"]


def test_mem_get_info():
    free, total = flagos.mem_get_info()
    assert 0 < free <= total == flagos.get_device_properties().total_memory


def test_summary_is_a_table():
    x = torch.empty(MIB, dtype=torch.uint8, device="flagos")
    full, short = flagos.memory_summary(), flagos.memory_summary(abbreviated=True)
    assert "Allocated memory" in full and "from large pool" in full
    assert "Allocated memory" in short and "from large pool" not in short
    del x


def test_snapshot_accounts_for_what_is_reserved():
    x = torch.empty(MIB, dtype=torch.uint8, device="flagos")
    segments = flagos.memory_snapshot()
    assert sum(segment["total_size"] for segment in segments) == flagos.memory_reserved()
    addresses = {
        block["address"]
        for segment in segments
        for block in segment["blocks"]
        if block["state"].startswith("active")
    }
    assert x.data_ptr() in addresses


@pytest.mark.usefixtures("two_devices")
def test_devices_are_counted_apart():
    here = flagos.memory_allocated(0)
    there = flagos.memory_allocated(1)
    x = torch.empty(MIB, dtype=torch.uint8, device="flagos:1")
    assert flagos.memory_allocated("flagos:1") - there - MIB in ROUNDING
    assert flagos.memory_allocated("flagos:0") == here
    del x


def test_a_request_beyond_memory_says_how_much_was_asked_for():
    total = flagos.mem_get_info()[1]
    with pytest.raises(torch.OutOfMemoryError, match=r"requested|Tried to allocate"):
        torch.empty(2 * total, dtype=torch.uint8, device="flagos")
    assert torch.ones(3, device="flagos").sum().item() == 3


def test_a_fraction_of_memory_is_a_limit():
    total = flagos.mem_get_info()[1]
    flagos.empty_cache()
    flagos.set_per_process_memory_fraction(32 * MIB / total)
    try:
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(256 * MIB, dtype=torch.uint8, device="flagos")
    finally:
        flagos.set_per_process_memory_fraction(1.0)
    assert torch.empty(64 * MIB, dtype=torch.uint8, device="flagos").numel() == 64 * MIB


@pytest.mark.needs("faults")
def test_an_injected_failure_says_that_it_is_injected(run_python):
    script = """
    import torch
    for allocate in (lambda: torch.ones(2, device="flagos"), lambda: torch.ones(2).pin_memory()):
        try:
            allocate()
        except torch.OutOfMemoryError as error:
            print(error)
    """
    lines = run_python(script, FLAGOS_HOST_FAULT="alloc=1.0").stdout.splitlines()
    report = [line for line in lines if "injected failure" in line and "FLAGOS_HOST_FAULT" in line]
    assert len(report) == 2


@pytest.mark.host
def test_no_more_is_pinned_than_the_machine_has():
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    with pytest.raises(torch.OutOfMemoryError, match="pin less"):
        torch.empty(2 * pages, dtype=torch.uint8, pin_memory=True)
    assert torch.empty(MIB, dtype=torch.uint8, pin_memory=True).is_pinned()


def test_a_view_of_host_memory():
    whole = torch.arange(24, dtype=torch.float32).view(4, 6).pin_memory()
    part = whole[1:, ::2].t()  # an offset, and strides
    if _core.vendor_info()["name"] not in ("host", "cuda"):
        with pytest.raises(UnsupportedError, match="copy the tensor"):
            flagos.host_memory_view(part)
        return
    view = flagos.host_memory_view(part, "flagos:0")
    assert view.device == torch.device("flagos", 0)
    assert (view.shape, view.stride(), view.dtype) == (part.shape, part.stride(), part.dtype)
    assert torch.equal(view.cpu(), part)
    whole.fill_(5)
    assert (view.cpu() == 5).all()
    view.mul_(torch.full((3, 3), 3.0, device="flagos"))
    flagos.synchronize()
    assert (part == 15).all() and (whole[0] == 5).all()
    assert (view.clone().cpu() == 15).all()


@pytest.mark.host
def test_a_view_keeps_the_host_memory():
    flagos.init()
    before = flagos.host_memory_stats().get("active_bytes.current", 0)
    x = torch.full((2 * MIB,), 7, dtype=torch.uint8, pin_memory=True)
    parameter = torch.nn.Parameter(torch.empty(0, dtype=torch.uint8, device="flagos"), False)
    parameter.data = flagos.host_memory_view(x)[MIB:]
    del x
    gc.collect()
    assert flagos.host_memory_stats()["active_bytes.current"] == before + 2 * MIB
    other = torch.zeros(2 * MIB, dtype=torch.uint8, pin_memory=True)
    assert (parameter.cpu() == 7).all() and not other.any()
    del parameter
    gc.collect()
    assert flagos.host_memory_stats()["active_bytes.current"] == before + 2 * MIB  # the other's
    del other
    assert flagos.host_memory_stats()["active_bytes.current"] == before


@pytest.mark.host
def test_what_has_no_view():
    with pytest.raises(ValueError, match="pin_memory=True"):
        flagos.host_memory_view(torch.zeros(3))
    with pytest.raises(TypeError, match="on flagos:0"):
        flagos.host_memory_view(torch.zeros(3, device="flagos"))
    with pytest.raises(TypeError, match="sparse"):
        flagos.host_memory_view(torch.eye(2).to_sparse())
    assert flagos.host_memory_view(torch.empty(2, 0, 3)).shape == (2, 0, 3)


@pytest.mark.host
def test_statistics_of_pinned_memory():
    flagos.init()
    flagos.empty_cache()
    flagos.reset_accumulated_host_memory_stats()
    flagos.reset_peak_host_memory_stats()
    before = flagos.host_memory_stats()
    x = torch.empty(3 * MIB, dtype=torch.uint8).pin_memory()
    held = flagos.host_memory_stats()
    assert held["active_requests.current"] == before["active_requests.current"] + 1
    assert held["active_bytes.current"] == before["active_bytes.current"] + 4 * MIB
    assert held["num_host_alloc"] == held["host_alloc_time.count"] == 1
    assert held["host_alloc_time.min"] == held["host_alloc_time.max"] == held["host_alloc_time.avg"]
    del x
    cached = flagos.host_memory_stats()
    assert cached["active_bytes.current"] == before["active_bytes.current"]
    assert cached["active_bytes.peak"] == held["active_bytes.current"]
    assert cached["allocated_bytes.current"] == before["allocated_bytes.current"] + 4 * MIB
    flagos.empty_cache()
    after = flagos.host_memory_stats()
    assert after["allocated_bytes.current"] == before["allocated_bytes.current"]
    assert after["allocated_bytes.freed"] >= 4 * MIB and after["num_host_free"] >= 1
    flagos.reset_peak_host_memory_stats()
    assert flagos.host_memory_stats()["active_bytes.peak"] == before["active_bytes.current"]
    flagos.reset_accumulated_host_memory_stats()
    assert flagos.host_memory_stats()["num_host_alloc"] == 0


def test_statistics_of_pinned_memory_have_torchs_names():
    expected = {
        f"{name}.{metric}"
        for name in ("active_requests", "active_bytes", "allocations", "allocated_bytes")
        for metric in ("current", "peak", "allocated", "freed")
    }
    expected |= {
        f"host_{call}_time.{metric}"
        for call in ("alloc", "free")
        for metric in ("total", "max", "min", "count", "avg")
    }
    flagos.init()
    assert flagos.host_memory_stats().keys() == expected | {"num_host_alloc", "num_host_free"}


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool, torch.complex64]
)
def test_fresh_memory_is_filled_where_every_run_has_to_be_the_same(dtype, native):
    torch.use_deterministic_algorithms(True)
    try:
        made = {}
        for device in (native, "flagos"):
            x = torch.ones(3, 4, dtype=dtype, device=device)
            made[device] = [
                torch.empty(2, 3, dtype=dtype, device=device),
                torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=device),
                torch.empty_like(x),
                x.new_empty(5),
                torch.empty_permuted((2, 3), (1, 0), dtype=dtype, device=device),
                torch.ones(2, dtype=dtype, device=device).resize_(6),
            ]
        for ours, theirs in zip(made["flagos"], made[native], strict=True):
            torch.testing.assert_close(ours.cpu(), theirs.cpu(), rtol=0, atol=0, equal_nan=True)
    finally:
        torch.use_deterministic_algorithms(False)
