"""When the original path must be taken, it is, and is counted with its reason."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from typing import Any

import pytest
import torch

from adapters.torch.tests.launcher import simulated
from adapters.torch.tests.launcher.comparison import compare, original, outcome

pytestmark = pytest.mark.host


@pytest.fixture
def out(driver: Any) -> Any:
    return simulated.tensor(64, torch.float32)


@pytest.fixture
def kernels(launcher: Any) -> Any:
    from adapters.torch.tests.launcher import kernels

    return kernels


def fallbacks(launcher: Any, text: str) -> int:
    """How many launches took the original path for a reason that contains `text`."""
    reasons = launcher.statistics()["fallback"]
    return sum(count for reason, count in reasons.items() if text in reason)


def test_a_call_is_native_from_the_third_time_on(launcher: Any, kernels: Any, out: Any) -> None:
    compare(lambda: kernels.one[(1,)](out, 3))
    launcher.reset_statistics()
    for _ in range(10):
        kernels.one[(1,)](out, 12_345 * 3)  # as specialised as 3
    assert launcher.statistics()["native"] == 10
    for _ in range(10):
        kernels.one[(1,)](out, 12_345 * 16)
    assert fallbacks(launcher, "twice") <= 2


@pytest.mark.parametrize(
    "grid",
    [(1,), (2, 3), (2, 3, 4), (0,), (4, 0, 2), lambda meta: (meta["a"], meta["out"].numel())],
    ids=["1", "2", "3", "none", "no rows", "function"],
)
def test_grids(launcher: Any, kernels: Any, out: Any, grid: Any) -> None:
    compare(lambda: kernels.one[grid](out, 3))


def test_a_grid_without_programs_is_native_and_launches_nothing(
    launcher: Any, kernels: Any, out: Any
) -> None:
    compare(lambda: kernels.one[(0,)](out, 3))
    before = launcher.statistics()["native"]
    assert outcome(lambda: kernels.one[(0,)](out, 3)).launches == []
    assert launcher.statistics()["native"] == before + 1


def test_a_kernel_that_another_process_compiled_can_be_launched(
    launcher: Any, kernels: Any, out: Any
) -> None:
    # As Inductor restores one: `TritonCompileResult.__getstate__` writes `run`, too.
    compiled = kernels.one[(1,)](out, 3)
    restored = type(compiled).__new__(type(compiled))
    vars(restored).update(vars(compiled), run=None)
    assert restored.run is compiled.run is not None


@pytest.mark.parametrize(
    "grid", [[2], (2.0,), (-1,), (-1, -1), (), (1, 2, 3, 4), (2**31,), "12", (True,)], ids=repr
)
def test_other_grids_do_what_they_do_in_triton(
    launcher: Any, kernels: Any, out: Any, grid: Any
) -> None:
    native = grid == (1, 2, 3, 4)
    compare(lambda: kernels.one[grid](out, 3), native=native)


def test_a_grid_function_is_told_what_triton_tells_it(
    launcher: Any, kernels: Any, out: Any
) -> None:
    report = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        report.append(dict(meta))
        return (2,)

    compare(lambda: kernels.many[grid](out, 1, 2, c=3, d=out, e=0.5, FLAG=True, num_warps=2))
    assert len(report) == 5 and all(list(one) == list(report[0]) for one in report)
    assert all(one[name] is report[0][name] for one in report for name in report[0])

    def failing(meta: dict[str, Any]) -> tuple[int]:
        raise LookupError("no grid today")

    found = compare(lambda: kernels.many[failing](out, 1, 2, 3, 4, 5), native=False)
    assert found.raised == (LookupError, "no grid today")


def test_run_is_replaced_too(launcher: Any, kernels: Any, out: Any) -> None:
    compare(lambda: kernels.one.run(out, 3, grid=(2,), warmup=False))
    compare(lambda: kernels.one.run(out, 3, grid=lambda meta: (meta["a"],), warmup=False))
    compare(lambda: kernels.one.warmup(out, 3, grid=(2,)), native=False)
    assert fallbacks(launcher, "warm-up")


def test_launch_hooks_are_called(launcher: Any, kernels: Any, out: Any) -> None:
    from triton import knobs

    report: list[str] = []
    hook = lambda metadata: report.append(metadata.get()["name"])  # noqa: E731
    for chain in (knobs.runtime.launch_enter_hook, knobs.runtime.launch_exit_hook):
        compare(lambda: kernels.one[(1,)](out, 3))
        chain.add(hook)
        try:
            compare(lambda: kernels.one[(1,)](out, 3), native=False)
        finally:
            chain.remove(hook)
        compare(lambda: kernels.one[(1,)](out, 3))
    assert report == ["one"] * 10
    assert fallbacks(launcher, "launch hooks") == 8
    with knobs.runtime.scope():
        knobs.runtime.launch_enter_hook = hook
        compare(lambda: kernels.one[(1,)](out, 3), native=False)
        knobs.runtime.launch_enter_hook = None
        compare(lambda: kernels.one[(1,)](out, 3))


def test_pre_run_hooks_are_called(launcher: Any, kernels: Any, out: Any) -> None:
    compare(lambda: kernels.hooked[(1,)](out, 3))
    report: list[int] = []
    kernels.hooked.add_pre_run_hook(lambda *args, **kwargs: report.append(args[1]))
    compare(lambda: kernels.hooked[(1,)](out, 3), native=False)
    assert report == [3] * 5
    kernels.hooked.pre_run_hooks.clear()
    compare(lambda: kernels.hooked[(1,)](out, 3))


def test_a_changed_global_is_an_error_as_in_triton(
    launcher: Any, kernels: Any, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton.language as tl

    compare(lambda: kernels.scaled[(1,)](out, 3))
    monkeypatch.setattr(kernels, "SCALE", tl.constexpr(4))
    found = compare(lambda: kernels.scaled[(1,)](out, 3), native=False)
    assert found.raised is not None and "SCALE has changed" in found.raised[1]
    assert fallbacks(launcher, "global") == 4
    monkeypatch.undo()
    compare(lambda: kernels.scaled[(1,)](out, 3))


def test_debugging_takes_the_original_path(launcher: Any, kernels: Any, out: Any) -> None:
    from triton import knobs

    compare(lambda: kernels.one[(1,)](out, 3))
    with knobs.runtime.scope():
        knobs.runtime.debug = True
        compare(lambda: kernels.one[(1,)](out, 3), native=False)
    compare(lambda: kernels.one[(1,)](out, 3))
    compare(lambda: kernels.one[(1,)](out, 3, debug=True), native=False)


def test_another_driver_takes_the_original_path(
    launcher: Any, kernels: Any, out: Any, driver: Any
) -> None:
    from triton.runtime import driver as drivers

    compare(lambda: kernels.one[(1,)](out, 3))
    drivers.set_active(simulated.driver_class()())
    try:
        compare(lambda: kernels.one[(1,)](out, 3), native=False)
    finally:
        drivers.set_active(driver)
    compare(lambda: kernels.one[(1,)](out, 3))


def test_a_cleared_cache_compiles_again(launcher: Any, kernels: Any, out: Any) -> None:
    call = lambda: kernels.uncached[(1,)](out, 3)  # noqa: E731
    before = compare(call).result
    kernels.uncached.device_caches.clear()
    after = outcome(call)
    assert after.native == 0 and after.result is not before
    for _ in range(3):
        again = outcome(call)
    assert again.native == 1 and again.result is after.result


def test_a_replaced_run_is_called(
    launcher: Any, kernels: Any, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from triton.runtime.jit import JITFunction

    compare(lambda: kernels.one[(1,)](out, 3))
    report = []
    ours = JITFunction.run

    def run(self: Any, *args: Any, **kwargs: Any) -> Any:
        report.append(args)
        return ours(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(JITFunction, "run", run)
        kernels.one[(1,)](out, 3)
        assert len(report) == 1
    with monkeypatch.context() as patch:
        patch.setattr(kernels.one, "run", lambda *args, **kwargs: report.append(args))
        kernels.one[(1,)](out, 3)
        assert len(report) == 2
    compare(lambda: kernels.one[(1,)](out, 3))


def test_what_the_driver_refuses_is_raised_in_tritons_words(
    launcher: Any, kernels: Any, out: Any
) -> None:
    compare(lambda: kernels.one[(1,)](out, 3))
    found = original(lambda: kernels.one.run(out, 3, grid=(1,), warmup=False))
    assert found.raised is None
    simulated.library().cuda.simulated_refuse(1)
    again = outcome(lambda: kernels.one[(1,)](out, 3))
    assert again.native == 0 and again.raised is None, "the original path tried again"
    simulated.library().cuda.simulated_refuse(2)
    again = outcome(lambda: kernels.one[(1,)](out, 3))
    assert again.raised is not None and again.raised[1].startswith("Triton Error [CUDA]")
    assert fallbacks(launcher, "failed") == 2
    compare(lambda: kernels.one[(1,)](out, 3))


def test_kernels_that_need_scratch_memory_are_named(
    launcher: Any, kernels: Any, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No kernel of this Triton needs any on this target, so one is made to."""
    call = lambda: kernels.one[(1,)](out, 3, num_warps=16)  # noqa: E731
    kernel = original(call).result
    monkeypatch.setattr(kernel, "metadata", kernel.metadata._replace(global_scratch_size=8))
    compare(call, native=False)
    assert (
        "global_scratch_size"
        in launcher.statistics()["kernels"]["adapters.torch.tests.launcher.kernels.one"]
    )
    assert fallbacks(launcher, "Triton's launcher") > 0


def test_uninstalled_classes_are_as_they_were(launcher: Any, kernels: Any, out: Any) -> None:
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction, KernelInterface

    launcher.uninstall()
    assert launcher.installed() == []
    assert JITFunction.__getitem__ is KernelInterface.__getitem__
    assert JITFunction.run.__module__ == "triton.runtime.jit"
    assert type(CompiledKernel.__dict__["run"]) is property
    launcher.install()
    launcher.install()
    assert "triton.runtime.JITFunction" in launcher.installed()
    compare(lambda: kernels.one[(1,)](out, 3))


def test_another_version_is_left_alone(
    launcher: Any, kernels: Any, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_fl.launcher import source_hashes

    launcher.uninstall()
    monkeypatch.setitem(source_hashes.HASHES, "JITFunction.run", {"another"})
    left = launcher.install()
    assert "not known here" in left["triton.runtime.JITFunction"]
    assert "triton.runtime.JITFunction" not in launcher.installed()
    assert launcher.statistics()["left_alone"] == left
    monkeypatch.undo()
    assert launcher.install() == {}


def test_a_version_without_what_is_known_is_left_alone(
    launcher: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As triton-ascend 3.2.0, without a warning."""
    from triton.compiler import CompiledKernel
    from triton.runtime.jit import JITFunction

    launcher.uninstall()
    with monkeypatch.context() as older:
        older.delattr(JITFunction, "_pack_args")
        older.delattr(CompiledKernel, "run")
        left = launcher.install()
        launcher.uninstall()
    assert left["triton.runtime.JITFunction"] == "this version has no _pack_args"
    assert left["triton.compiler.CompiledKernel"] == "this version has no property run"
    assert launcher.install() == {}


def test_the_switch_keeps_it_away(launcher: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher.uninstall()
    monkeypatch.setenv("FLAGOS_LAUNCHER", "0")
    launcher.install()
    assert launcher.installed() == []


def test_recorders_are_told_of_every_launch(launcher: Any, kernels: Any, out: Any) -> None:
    report: list[Any] = []
    call = lambda: kernels.many[lambda meta: (2, meta["b"])](out, 1, 4, 3, d=None, e=0.5)  # noqa: E731
    compare(call)
    with launcher.recording(lambda *launch: report.append(launch)):
        found = compare(call)
        kernels.many[(0,)](out, 1, 4, 3, d=None, e=0.5)
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    call()
    # The launches of this thread while it was recording.
    assert len(report) == 4
    expected = (found.result, (2, 4, 1), 0, (out, 1, 4, 3, None, 0.5, 7, None, False))
    for kernel, grid, stream, args in report:
        assert (kernel, grid, stream) == expected[:3]
        assert args[0] is out and args[1:] == expected[3][1:]


def test_recorders_are_told_of_the_original_paths_launches(
    launcher: Any, kernels: Any, out: Any
) -> None:
    report: list[Any] = []
    with launcher.recording(lambda *launch: report.append(launch)):
        found = outcome(lambda: kernels.one[[2, 3]](out, 3))
        kernels.one[[0]](out, 3)
        found.result[(4, 1, 1)](out, 3)
    assert found.native == 0
    assert [launch[:3] for launch in report] == [
        (found.result, (2, 3, 1), 0),
        (found.result, (4, 1, 1), 0),
    ]
    assert report[0][3][0] is out and report[0][3][1:] == (3,)


def test_what_a_recorder_raises_is_raised(launcher: Any, kernels: Any, out: Any) -> None:
    compare(lambda: kernels.one[(1,)](out, 3))

    def recorder(*launch: Any) -> None:
        raise LookupError("not this one")

    with launcher.recording(recorder), pytest.raises(LookupError, match="not this one"):
        kernels.one[(1,)](out, 3)


def test_a_launch_can_be_described_for_the_c_table(launcher: Any, kernels: Any, out: Any) -> None:
    report: list[Any] = []
    with launcher.recording(lambda *launch: report.append(launch)):
        found = outcome(lambda: kernels.many[(3, 2)](out, 1, 48, -5, 0.5, True, num_ctas=2))
    kernel, grid, _, args = report[0]
    launch = launcher.describe(kernel, grid, args)
    words = [f"parameter {size} {bits}" for size, _, bits, _ in launch["params"]]
    text = "many grid {} {} {} block {} {} {} shared {}".format(
        *launch["grid"], *launch["block"], launch["shared_bytes"]
    )
    assert found.launches[0].startswith(text)
    assert found.launches[0].endswith(" ".join(words))
    kinds = [kind for _, kind, _, _ in launch["params"]]
    assert kinds == ["pointer", *["constant"] * 7]


def test_threads_launch_at_once(launcher: Any, kernels: Any) -> None:
    count, rounds = 8, 300
    tensors = [simulated.tensor(64, torch.float32) for _ in range(count)]
    failures: list[BaseException] = []

    def work(tensor: torch.Tensor) -> None:
        try:
            for index in range(rounds):
                kernels.one[lambda meta: (meta["a"],)](tensor, index % 7 + 2)
        except BaseException as error:
            failures.append(error)

    with simulated.library().launches() as launches:
        threads = [threading.Thread(target=work, args=(tensor,)) for tensor in tensors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failures == []
    expected = [
        f"{tensor.data_ptr()} parameter 4 {index % 7 + 2} "
        for tensor in tensors
        for index in range(rounds)
    ]
    found = [launch.split("parameter 8 ", 1)[1] for launch in launches]
    assert len(found) == len(expected)
    for text in set(expected):
        assert sum(one.startswith(text) for one in found) == expected.count(text)


def test_a_forked_child_takes_the_original_path(launcher: Any, kernels: Any, out: Any) -> None:
    """Where CUDA itself fails: the simulated one ends the child with 77."""
    compare(lambda: kernels.one[(1,)](out, 3))
    child = os.fork()
    if child == 0:
        kernels.one[(1,)](out, 3)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 77
    compare(lambda: kernels.one[(1,)](out, 3))


def test_nothing_is_kept_alive(launcher: Any, kernels: Any) -> None:
    """A launch keeps neither its tensors nor its grid function alive."""

    class Holder:
        blocks = 2

    def run() -> list[weakref.ref[Any]]:
        tensor, holder = simulated.tensor(64, torch.float32), Holder()
        for _ in range(5):
            kernels.one[lambda meta: (holder.blocks,)](tensor, 3)
        return [weakref.ref(tensor), weakref.ref(holder)]

    references = run()
    gc.collect()
    assert [reference() for reference in references] == [None, None]


def test_functions_are_collected_with_their_plans(launcher: Any, kernels: Any, out: Any) -> None:
    from triton.runtime.jit import JITFunction

    def run() -> weakref.ref[Any]:
        function = JITFunction(kernels.one.fn)
        found = [outcome(lambda: function[(1,)](out, 3)) for _ in range(4)]
        assert found[-1].native == 1
        return weakref.ref(function)

    reference = run()
    gc.collect()
    assert reference() is None


def test_launching_costs_no_references(launcher: Any, kernels: Any, out: Any) -> None:
    import sys

    grid, text = (2, 2), "a text that nobody else has"
    objects = [out, grid, text, kernels.constant]
    call = lambda: kernels.constant[grid](out, text)  # noqa: E731
    compare(call)
    result = call()
    before = [sys.getrefcount(value) for value in [*objects, result]]
    for _ in range(1000):
        call()
    assert [sys.getrefcount(value) for value in [*objects, result]] == before
