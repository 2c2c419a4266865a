"""The controls of the simulator's misuses: what a program of torch does that comes closest, the product does rightly.

Each name on the left is a program of `core/vendors/ascend/simulated` that misuses a library and is caught. The program
on the right must have called the functions beside it, and leaves no misuse behind (see conftest.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("torch_fl", reason="the torch adapter is not installed")

from core.vendors.ascend.simulated import aclnn_misuses, misuses  # noqa: F401  they register their programs
from core.vendors.ascend.simulated.library import CASES
from core.vendors.ascend.tests import simulator

pytestmark = pytest.mark.ascend

ON = "flagos"
OTHER = "flagos:1"


def ones(*shape: int, **how: object) -> torch.Tensor:
    return torch.ones(shape, device=ON, **how)


def late() -> torch.Tensor:
    """The result of work that the device has still to do."""
    x = ones(128, 128)
    for _ in range(10):
        x = (x @ x).softmax(-1)
    return x


def nothing_is_allocated() -> None:
    x = torch.empty(0, device=ON)
    assert x.data_ptr() == 0 and (x + 1).numel() == 0


def freed_with_work() -> None:
    late()
    ones(1 << 22).mul_(2)
    torch.flagos.empty_cache()


def pinned_and_forgotten() -> None:
    x = late()
    host = torch.empty(128, 128, pin_memory=True)
    host.copy_(x, non_blocking=True)
    del host, x
    torch.empty(128, 128, pin_memory=True).fill_(7)


def read_at_once() -> None:
    assert abs(late().cpu().sum().item() - 128) < 1e-2


def in_a_thread() -> None:
    told: list[float] = []

    def run() -> None:
        told.append((torch.ones(3, device=OTHER) + 1).sum().item())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert told == [6]


def streams_of_two_devices() -> None:
    stream = torch.flagos.Stream(device=OTHER)
    x = ones(4)
    with torch.flagos.stream(stream):
        y = torch.ones(4, device=OTHER) * 2
        x.add_(1)  # device 0, while device 1 is current
    stream.synchronize()
    assert (x.sum().item(), y.sum().item()) == (8, 8)


def waits_and_forgets() -> None:
    stream, event = torch.flagos.Stream(), torch.flagos.Event()
    event.wait(stream)  # before it was recorded: nothing to wait for
    x = late()
    event.record()
    event.wait(stream)
    del event
    with torch.flagos.stream(stream):
        y = x + 1
    x.record_stream(stream)
    del x
    stream.synchronize()
    assert y.shape == (128, 128)


def timed() -> None:
    begin, end = (torch.flagos.Event(enable_timing=True) for _ in range(2))
    begin.record()
    late()
    end.record()
    end.synchronize()
    assert begin.elapsed_time(end) > 0


def times_of_plain_events() -> None:
    begin, end = torch.flagos.Event(), torch.flagos.Event()
    begin.record()
    end.record()
    torch.flagos.synchronize()
    with pytest.raises(ValueError, match="timing"):
        begin.elapsed_time(end)


def captured(
    work: Callable[[torch.Tensor], torch.Tensor],
) -> tuple[torch.flagos.Graph, torch.Tensor, torch.Tensor]:
    """A graph of some work, what it reads, and its result."""
    x = ones(8)
    work(x)
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        result = work(x)
    return graph, x, result


def captured_and_forgotten() -> None:
    graph, given, result = captured(lambda x: (x + 1).exp().square())
    given.fill_(0)
    torch.flagos.empty_cache()  # what was made between is the graph's
    for _ in range(3):
        graph.replay()
    del graph
    assert abs(result.sum().item() - 8 * torch.tensor(2.0).exp().item()) < 1e-3


def reads_while_it_is_captured() -> None:
    with pytest.raises(RuntimeError):
        captured(lambda x: x * x.sum().item() if torch.flagos.is_current_stream_capturing() else x)
    assert ones(2).sum().item() == 2


def forks_while_it_is_captured() -> None:
    side = torch.flagos.Stream()

    def work(x: torch.Tensor) -> torch.Tensor:
        side.wait_stream(torch.flagos.current_stream())
        with torch.flagos.stream(side):
            y = x * 3
        torch.flagos.current_stream().wait_stream(side)
        return y + 1

    graph, given, result = captured(work)
    given.add_(0)
    graph.replay()
    assert result.sum().item() == 32


def between_devices() -> None:
    assert (torch.arange(6.0, device=ON).to(OTHER) + 1).sum().item() == 21


def lists() -> None:
    parts = [ones(2) for _ in range(120)]
    torch._foreach_add_(parts, 1.0)
    halves = [ones(2, dtype=torch.float16) for _ in range(3)]
    torch._foreach_mul_(halves, 2)
    assert sum(part.sum().item() for part in [*parts, *halves]) == 480 + 12


def masks() -> None:
    bytes_ = torch.tensor([0, 2, 255], dtype=torch.uint8, device=ON)
    assert torch.where(bytes_.bool(), 1.0, 0.0).tolist() == [0, 1, 1]
    assert ones(3).masked_fill(bytes_.view(torch.int8) != 0, 5).tolist() == [1, 5, 5]


def overlapping() -> None:
    x = torch.arange(8.0, device=ON)
    x[1:].add_(x[:-1].clone())
    assert x.tolist() == [0, 1, 3, 5, 7, 9, 11, 13]
    for refused in (lambda: torch.add(x[:7], 1, out=x[1:]), lambda: ones(1).expand(4).add_(1)):
        with pytest.raises(RuntimeError, match="single memory location"):
            refused()


def views_at_the_end() -> None:
    x = torch.arange(12.0, device=ON)
    assert (x[9:] + x[-3:]).tolist() == [18, 20, 22]
    assert (x.as_strided((2, 3), (3, 1), 6) * 1).flatten().tolist() == [6, 7, 8, 9, 10, 11]


def repeated_elsewhere() -> None:
    """Calls of one signature, whose optional tensors are left out, at other addresses: one executor serves them all."""
    executors = []
    given = [torch.full((2, 3, 4, 4), float(number), device=ON) for number in range(4)]
    for number, x in enumerate(given):
        assert F.batch_norm(x, None, None, training=True).abs().max().item() < 1e-3
        assert F.layer_norm(x, (4,)).abs().max().item() < 1e-3
        assert F.conv2d(x, ones(1, 3, 1, 1)).sum().item() == number * 96
        executors.append(simulator.live("executors"))
    assert executors[0] > 0 and executors[1:] == executors[1:2] * 3


def of_unknown_size() -> None:
    x = torch.tensor([0.0, 3.0, 0.0, 4.0], device=ON)
    assert x.nonzero().flatten().tolist() == [1, 3]
    assert x[x > 0].tolist() == [3, 4] and x.unique().tolist() == [0, 3, 4]


def negative_places() -> None:
    x = torch.arange(5.0, device=ON)
    assert x[torch.tensor([-1, 0], device=ON)].tolist() == [4, 0]


def of_nine_dimensions() -> None:
    assert (ones(*[1] * 8, 3) + 1).sum().item() == 6


def backwards() -> None:
    x = torch.arange(4.0, device=ON)
    assert (x.flip(0) + x).tolist() == [3, 3, 3, 3]
    with pytest.raises(ValueError, match="step must be greater than zero"):
        x[::-1]


def images_without_a_batch() -> None:
    assert F.avg_pool2d(ones(3, 4, 4), 2).sum().item() == 12
    assert F.conv1d(ones(2, 5), ones(1, 2, 1)).sum().item() == 10
    assert F.adaptive_avg_pool2d(ones(3, 4, 4), 2).sum().item() == 12


def pools_with_places() -> None:
    x = torch.arange(16.0, device=ON).view(1, 1, 4, 4)
    pooled, places = F.max_pool2d(x, 2, return_indices=True)
    assert places.dtype == torch.int64 and places.flatten().tolist() == [5, 7, 13, 15]
    assert torch.equal(pooled.flatten().long().cpu(), places.flatten().cpu())


def other_types_of_results() -> None:
    x = torch.tensor([True, True], device=ON)
    assert x.sum().dtype == torch.int64 and x.int().sum().item() == 2
    assert (ones(2, dtype=torch.int32) / 2).tolist() == [0.5, 0.5]
    assert (ones(2, dtype=torch.float64).erfinv()).shape == (2,)


def numbers_of_the_host() -> None:
    assert (ones(2) + torch.tensor(2.0)).tolist() == [3, 3]
    assert torch.where(ones(2) > 0, torch.tensor(4.0), ones(2)).tolist() == [4, 4]


def spread_arguments() -> None:
    x = torch.zeros(3, 4, device=ON).t()
    x = x.scatter_add(0, torch.zeros(2, 3, dtype=torch.long, device=ON), ones(3, 2).t())
    assert x.sum().item() == 6


CONTROLS: dict[str, tuple[Callable[[], None], tuple[str, ...]]] = {
    "misuses.size_of_zero": (nothing_is_allocated, ()),
    "misuses.double_free": (freed_with_work, ("aclrtFree",)),
    "misuses.free_while_work_uses_the_block": (freed_with_work, ("aclrtFree",)),
    "misuses.free_of_pinned_memory_while_a_copy_uses_it": (
        pinned_and_forgotten,
        ("aclrtMemcpyAsync",),
    ),
    "misuses.copy_before_the_stream_was_synchronized": (read_at_once, ("aclnnMm", "aclnnSoftmax")),
    "misuses.thread_without_a_context": (in_a_thread, ("aclrtSetCurrentContext",)),
    "misuses.stream_of_another_context": (streams_of_two_devices, ("aclrtSetCurrentContext",)),
    "misuses.destroyed_event": (waits_and_forgets, ("aclrtRecordEvent", "aclrtStreamWaitEvent")),
    "misuses.wait_for_an_event_without_sync": (waits_and_forgets, ("aclrtStreamWaitEvent",)),
    "misuses.wait_for_a_plain_event_that_was_never_recorded": (waits_and_forgets, ()),
    "misuses.time_that_events_do_not_have": (timed, ("aclrtEventElapsedTime",)),
    "misuses.calls_that_ex_events_do_not_have": (times_of_plain_events, ("aclrtRecordEvent",)),
    "misuses.capture_of_the_default_stream": (captured_and_forgotten, ("aclmdlRICaptureBegin",)),
    "misuses.graph_over_memory_that_was_freed": (captured_and_forgotten, ("aclmdlRIExecuteAsync",)),
    "misuses.graph_destroyed_while_it_runs": (captured_and_forgotten, ("aclmdlRIDestroy",)),
    "misuses.host_calls_in_a_capture": (reads_while_it_is_captured, ("aclmdlRICaptureEnd",)),
    "misuses.captured_stream_used_by_the_host": (reads_while_it_is_captured, ()),
    "misuses.capture_ended_with_an_unjoined_stream": (
        forks_while_it_is_captured,
        ("aclmdlRICaptureEnd", "aclmdlRIExecuteAsync"),
    ),
    "misuses.peer_that_was_not_enabled": (between_devices, ("aclrtMemcpyAsync",)),
    "aclnn_misuses.nine_dimensions": (of_nine_dimensions, ()),
    "aclnn_misuses.negative_stride": (backwards, ("aclnnFlip",)),
    "aclnn_misuses.rank_that_an_operator_does_not_take": (
        images_without_a_batch,
        ("aclnnAvgPool2d",),
    ),
    "aclnn_misuses.format_without_names": (images_without_a_batch, ("aclnnAdaptiveAvgPool2d",)),
    "aclnn_misuses.dtype_that_an_operator_does_not_take": (other_types_of_results, ()),
    "aclnn_misuses.dtype_of_the_result": (other_types_of_results, ("aclnnReduceSum",)),
    "aclnn_misuses.indices_of_the_width_of_torch": (
        pools_with_places,
        ("aclnnMaxPool2dWithIndices",),
    ),
    "aclnn_misuses.strides_that_an_operator_does_not_take": (
        spread_arguments,
        ("aclnnScatterAdd",),
    ),
    "aclnn_misuses.bool_that_is_neither": (masks, ("aclnnSWhere", "aclnnInplaceMaskedFillScalar")),
    "aclnn_misuses.list_that_is_too_long": (lists, ("aclnnForeachAddScalarV2",)),
    "aclnn_misuses.scalar_of_another_dtype_than_the_list": (lists, ("aclnnForeachMulScalarV2",)),
    "aclnn_misuses.view_beyond_its_storage": (views_at_the_end, ("aclnnMuls",)),
    "aclnn_misuses.memory_that_is_not_aligned": (views_at_the_end, ("aclnnAdd",)),
    "aclnn_misuses.memory_of_the_host": (numbers_of_the_host, ("aclnnAdds",)),
    "aclnn_misuses.results_over_arguments": (overlapping, ("aclnnInplaceAdd",)),
    "aclnn_misuses.result_over_itself": (overlapping, ()),
    "aclnn_misuses.executor_used_twice": (repeated_elsewhere, ("aclnnBatchNorm",)),
    "aclnn_misuses.repeatable_too_late": (repeated_elsewhere, ("aclnnBatchNorm",)),
    "aclnn_misuses.address_of_no_input": (
        repeated_elsewhere,
        ("aclnnLayerNorm", "aclnnConvolution"),
    ),
    "aclnn_misuses.argument_moved_between_the_phases": (
        repeated_elsewhere,
        ("aclnnLayerNorm", "aclnnConvolution"),
    ),
    "aclnn_misuses.workspace_freed_too_early": (freed_with_work, ("aclnnMm",)),
    "aclnn_misuses.shape_that_is_not_known_yet": (
        of_unknown_size,
        ("aclnnNonzero", "aclnnUnique2"),
    ),
    "aclnn_misuses.index_out_of_range": (negative_places, ("aclnnIndex",)),
}


@pytest.mark.parametrize("misuse", CONTROLS)
def test_what_comes_closest_to_a_misuse_is_none(misuse: str) -> None:
    assert CASES[misuse].recorded, "the simulator catches it"
    if not simulator.is_loaded():
        pytest.skip("counts the calls of the simulated libraries")
    program, functions = CONTROLS[misuse]
    before = {name: simulator.calls(name) for name in functions}
    program()
    torch.flagos.synchronize()
    assert [name for name in functions if simulator.calls(name) == before[name]] == []


def test_there_are_about_as_many_as_were_thought_of() -> None:
    assert len(CONTROLS) >= 30
