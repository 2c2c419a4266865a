"""The share of communication that runs beside computation, of events whose times are known."""

from __future__ import annotations

import pytest
from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from tests.bench.gpu.overlap import share_beside, spans, union

NCCL = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"


def event(name: str, start: int, end: int, device: DeviceType, marked: bool = False):
    return FunctionEvent(
        id=0,
        name=name,
        thread=0,
        start_us=start,
        end_us=end,
        device_type=device,
        is_user_annotation=marked,
    )


@pytest.mark.parametrize("device", [DeviceType.CUDA, DeviceType.PrivateUse1])
def test_kernels_are_those_of_the_device_whatever_it_is_called(device):
    events = [
        event(NCCL, 100, 200, device),
        event("gemm", 150, 170, device),
        event("gemm", 180, 300, device),
        event("nccl:all_reduce", 0, 1000, device, marked=True),
        event("## step ##", 0, 1000, device, marked=True),
        event("Memcpy DtoD", 100, 200, device),
        event("aten::mm", 0, 1000, DeviceType.CPU),
        event("nccl:all_reduce", 0, 1000, DeviceType.CPU),
    ]
    assert spans(events) == ([(100, 200)], [(150, 170), (180, 300)])
    assert share_beside(*spans(events)) == pytest.approx(0.4)


def test_time_is_counted_once():
    # Two kernels of each kind at once, and one of NCCL that nothing runs beside.
    assert union([(5, 9), (0, 4), (3, 6), (20, 30)]) == [(0, 9), (20, 30)]
    assert share_beside([(0, 10), (5, 10), (20, 30)], [(0, 5), (0, 5), (2, 5)]) == 0.25
    assert share_beside([(0, 10)], [(0, 10)]) == 1
    assert share_beside([(0, 10)], [(10, 20)]) == 0


def test_nothing_measured_is_no_share():
    with pytest.raises(ValueError, match="0 spans of NCCL"):
        share_beside([], [(0, 1)])
    with pytest.raises(ValueError, match="0 of others"):
        share_beside([(0, 1)], [])
