"""Launches of vLLM's Triton kernels as calls of operators."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from flagos import Operator
from vllm_flagos import launches

pytestmark = pytest.mark.host


def kernel(out_ptr: Any, x_ptr: Any, size: int, BLOCK: int, MODE: bool) -> None:
    """A kernel as it is without Triton: a plain function."""


@pytest.mark.parametrize("by_triton", [False, True])
def test_every_way_of_launching_is_one_call(by_triton: bool) -> None:
    operator = Operator("test::by_triton" if by_triton else "test::without_triton")
    calls: list[Any] = []
    operator.offer(
        lambda *args, **settings: calls.append((args, settings)),
        impl_id="reference.launched",
        kind="reference",
        backend="reference",
    )
    names = ["out_ptr", "x_ptr", "size", "BLOCK", "MODE"]
    taken: Any = SimpleNamespace(arg_names=names) if by_triton else kernel
    module = SimpleNamespace(kernel=taken)
    launches.replace(module, "kernel", operator)
    launches.replace(module, "kernel", operator)  # again does nothing
    assert tuple(module.kernel.arg_names) == tuple(names)  # which vLLM 0.33 reads
    grid = (3,)
    module.kernel[grid]("out", "x", 5, 64, MODE=True)  # vLLM 0.26
    module.kernel[grid]("out", "x", 5, BLOCK=64, MODE=True)
    module.kernel[grid](MODE=True, BLOCK=64, size=5, x_ptr="x", out_ptr="out")  # vLLM 0.33
    assert calls == [((grid, "out", "x", 5), {"BLOCK": 64, "MODE": True})] * 3


def test_the_kernel_itself_is_launched() -> None:
    launched: list[Any] = []

    class Kernel:
        arg_names = ("x_ptr", "BLOCK")

        def __getitem__(self, grid: Any) -> Any:
            return lambda *args, **settings: launched.append((grid, args, settings))

    launches.replace(SimpleNamespace(kernel=Kernel()), "kernel", Operator("vllm::of_the_test"))
    launches.launch("of_the_test")((2,), "x", BLOCK=8)
    assert launched == [((2,), ("x",), {"BLOCK": 8})]
