"""FlagGems' operators make the same launches through its `LibEntry` and natively."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from adapters.torch.tests.launcher import simulated
from adapters.torch.tests.launcher.comparison import original, outcome

pytestmark = [
    pytest.mark.host,
    pytest.mark.skipif(
        find_spec("flag_gems") is None,
        reason="FlagGems is not installed (pip install --no-deps flag_gems==5.0.2 sqlalchemy)",
    ),
]

CASES: dict[str, Callable[[Any, torch.Tensor, torch.Tensor], Any]] = {
    "add": lambda gems, x, w: gems.add(x, x, alpha=2),
    "add_scalar": lambda gems, x, w: gems.add(x, 2.5),
    "mul": lambda gems, x, w: gems.mul(x, x),
    "mul_broadcast": lambda gems, x, w: gems.mul(x, w),
    "mul_transposed": lambda gems, x, w: gems.mul(x.t(), x),
    "silu": lambda gems, x, w: gems.silu(x),
    "gelu": lambda gems, x, w: gems.gelu(x),
    "softmax": lambda gems, x, w: gems.softmax(x, -1),
    "rms_norm": lambda gems, x, w: gems.rms_norm(x, [64], w),
    "sum": lambda gems, x, w: gems.sum(x),
    "sum_dim": lambda gems, x, w: gems.sum_dim(x, [1]),
    "mean": lambda gems, x, w: gems.mean(x),
    "exp": lambda gems, x, w: gems.exp(x),
    "cat": lambda gems, x, w: gems.cat([x, x], 1),
    "embedding": lambda gems, x, w: gems.embedding(x, torch.zeros(4, dtype=torch.int64)),
    "cos": lambda gems, x, w: gems.cos(x),
    "rsqrt": lambda gems, x, w: gems.rsqrt(x),
    "bfloat16": lambda gems, x, w: gems.silu(x.to(torch.bfloat16)),
}


@pytest.fixture(scope="module")
def gems(driver: Any) -> Iterator[Any]:
    with simulated.flaggems() as gems, simulated.any_memory():
        yield gems


def without_addresses(launches: list[str]) -> list[str]:
    """Numbers addresses in the order of their appearance, as they change from call to call."""
    seen: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        return f"parameter 8 address {seen.setdefault(match[1], len(seen))}"

    return [re.sub(r"parameter 8 (\d{13,})", number, launch) for launch in launches]


@pytest.mark.parametrize("name", CASES)
def test_operators_launch_what_they_launch_in_python(gems: Any, launcher: Any, name: str) -> None:
    assert "flag_gems.utils.libentry.LibEntry" in launcher.installed()
    x, w = torch.randn(64, 64), torch.randn(64)
    call = lambda: CASES[name](gems, x, w)  # noqa: E731
    original(call)
    expected = original(call)
    for _ in range(4):
        found = outcome(call)
    assert expected.raised is None and expected.launches
    assert without_addresses(found.launches) == without_addresses(expected.launches)
    assert found.native == len(found.launches)


def test_the_comparison_sees_another_launch(gems: Any, launcher: Any) -> None:
    x = torch.randn(64, 64)
    one, two = original(lambda: gems.mul(x, x)), original(lambda: gems.mul(x, x[0]))
    assert without_addresses(one.launches) != without_addresses(two.launches)


def entry_of(kernel: Any) -> Any:
    from flag_gems.utils.libentry import LibEntry

    return LibEntry(kernel)


@pytest.fixture
def kernels(driver: Any) -> Any:
    from adapters.torch.tests.launcher import kernels

    return kernels


def test_the_result_is_the_kernel_and_its_constants(gems: Any, launcher: Any, kernels: Any) -> None:
    entry, out = entry_of(kernels.many), simulated.tensor(64, torch.float32)
    report: list[dict[str, Any]] = []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        report.append(dict(meta))
        return (meta["a"],)

    call = lambda: entry[grid](out, 5, 2, 3, 4, e=0.5, FLAG=True, num_warps=2)  # noqa: E731
    results = [original(call) for _ in range(2)] + [outcome(call) for _ in range(4)]
    assert [one.native for one in results] == [0, 0, 0, 0, 1, 1]
    kernel, constexprs = results[1].result
    for one in results[1:]:
        assert one.result[0] is kernel and one.result[1] is constexprs
        assert one.launches == results[1].launches
    # The first call compiles, and asks with Triton's arguments.
    for meta in report[2:]:
        assert meta.keys() == report[1].keys()
        assert all(meta[key] is report[1][key] for key in meta)


def test_numbers_are_distinguished_by_value_as_flaggems_does(
    gems: Any, launcher: Any, kernels: Any
) -> None:
    entry, out = entry_of(kernels.one), simulated.tensor(64, torch.float32)
    for value in (3, 5, 7):
        for _ in range(3):
            found = outcome(lambda value=value: entry[(1,)](out, value))
        assert found.native == 1
        assert f"parameter 4 {value} " in found.launches[0]
    before = launcher.statistics()["native"]
    entry[(1,)](out, 9)
    assert launcher.statistics()["native"] == before


def test_tuning_happens_once_and_its_choice_is_launched(
    gems: Any, launcher: Any, kernels: Any
) -> None:
    import triton

    tuned = triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=2)], key=["n"])(
        kernels.add
    )
    heuristic = triton.heuristics({"BLOCK": lambda args: 32 if args["n"] < 50 else 128})(
        kernels.add
    )
    x = simulated.tensor(64, torch.float32)
    for function in (tuned, heuristic):
        entry = entry_of(function)
        for n in (48, 64):
            call = lambda: entry[lambda meta: (meta["BLOCK"],)](x, x, x, n)  # noqa: B023, E731
            expected = [original(call) for _ in range(2)][1]
            found = [outcome(call) for _ in range(3)][2]
            assert found.native == 1
            assert found.launches == expected.launches


def test_pre_hooks_of_a_configuration_are_called(gems: Any, launcher: Any, kernels: Any) -> None:
    import triton

    report: list[int] = []
    config = triton.Config({"BLOCK": 64}, pre_hook=lambda args: report.append(args["n"]))
    entry = entry_of(triton.autotune(configs=[config], key=["n"])(kernels.add))
    x = simulated.tensor(64, torch.float32)
    for _ in range(5):
        found = outcome(lambda: entry[(1,)](x, x, x, 48))
        assert found.native == 0
    assert report[-4:] == [48] * 4
    assert (
        "pre-hook" in launcher.statistics()["kernels"]["adapters.torch.tests.launcher.kernels.add"]
    )


def test_a_cleared_cache_is_looked_up_again(gems: Any, launcher: Any, kernels: Any) -> None:
    entry, out = entry_of(kernels.one), simulated.tensor(64, torch.float32)
    call = lambda: entry[(1,)](out, 3)  # noqa: E731
    assert [outcome(call).native for _ in range(4)] == [0, 0, 1, 1]
    for cache in entry.kernel_cache:
        cache.clear()
    assert [outcome(call).native for _ in range(4)] == [0, 0, 1, 1]


def test_recorders_are_told(gems: Any, launcher: Any) -> None:
    x = torch.randn(64, 64)
    report: list[Any] = []
    for _ in range(4):
        report.clear()
        with launcher.recording(lambda *launch: report.append(launch)):
            found = outcome(lambda: gems.sum(x))
        assert len(report) == len(found.launches) == 2
        for (kernel, grid, _, args), text in zip(report, found.launches, strict=True):
            launch = launcher.describe(kernel, grid, args)
            words = [f"parameter {size} {bits}" for size, _, bits, _ in launch["params"]]
            assert text.endswith(" ".join(words))


def test_a_wider_search_reaches_kernels_with_native_plans_at_once() -> None:
    """FlagGems 5.3 asks its tuners at each run whether the user called `flagtune`; a native launch does not run it."""
    from torch_fl.launcher import entry

    happened: list[str] = []
    planned, other = Searched("planned", happened), Searched("other", happened)
    entry._searched.add(planned)
    entry._applied_at_once(lambda include=None: happened.append(f"asked for {include}"))("mm")
    assert happened == ["asked for mm", "planned"]
    assert other.name == "other"


class Searched:
    def __init__(self, name: str, happened: list[str]) -> None:
        self.name = name
        self._happened = happened

    def _apply_flagtune(self) -> None:
        self._happened.append(self.name)
