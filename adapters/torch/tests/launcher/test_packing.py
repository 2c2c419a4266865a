"""Every kind of argument reaches the driver as Triton's own launcher gives it."""

from __future__ import annotations

import math
import struct
import time
from typing import Any

import pytest
import torch

from adapters.torch.tests.launcher import simulated
from adapters.torch.tests.launcher.comparison import compare, outcome
from flagos import _core

pytestmark = pytest.mark.host

INTEGERS = [0, 1, 2, 15, 16, 17, -1, -16, 127, 128, 255, 256, -129, 32767, 32768, 65535, 65536]
INTEGERS += [2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**32, 2**40, 2**63 - 1, 2**63, 2**64 - 1]
FLOATS = [0.0, -0.0, 0.5, 1.0, 16.0, 1 / 3, -2.7, 65504.0, 65519.0, 6e-8, 2e-8, 1e-40, 1e300]
FLOATS += [math.inf, -math.inf, math.nan]


@pytest.fixture
def out(driver: Any) -> Any:
    return simulated.tensor(64, torch.float32)


@pytest.fixture
def kernels(driver: Any) -> Any:
    from adapters.torch.tests.launcher import kernels

    return kernels


@pytest.mark.parametrize("value", [*INTEGERS, True, False, *FLOATS, None], ids=repr)
def test_numbers_are_passed_as_triton_passes_them(
    launcher: Any, kernels: Any, out: Any, value: Any
) -> None:
    compare(lambda: kernels.one[(1,)](out, value))


@pytest.mark.parametrize(
    "value",
    [2**64, -(2**63) - 1, "text", [1], object()],
    ids=["too much", "too little", "text", "list", "object"],
)
def test_what_triton_refuses_is_refused_in_its_words(
    launcher: Any, kernels: Any, out: Any, value: Any
) -> None:
    found = compare(lambda: kernels.one[(1,)](out, value), native=False)
    assert found.raised is not None


def test_tuples_take_the_original_path(launcher: Any, kernels: Any, out: Any) -> None:
    compare(lambda: kernels.one[(1,)](out, (1, 2)), native=False)
    assert any("type" in reason for reason in launcher.statistics()["fallback"])


def test_tensor_descriptors_take_the_original_path(launcher: Any, kernels: Any, out: Any) -> None:
    from triton.tools.tensor_descriptor import TensorDescriptor

    tensor = simulated.tensor(1024, torch.float32).view(32, 32)
    descriptor = TensorDescriptor.from_tensor(tensor, [16, 16])
    found = compare(lambda: kernels.described[(1,)](descriptor, out), native=False)
    # The simulated driver makes none, which is far enough.
    assert found.raised is not None and "Triton Error [CUDA]" in found.raised[1]


@pytest.mark.parametrize("name", ["i8", "i16", "i32", "i64", "u1", "u8", "u16", "u32", "u64"])
def test_annotated_integers_wrap_and_fail_as_in_triton(
    launcher: Any, kernels: Any, out: Any, name: str
) -> None:
    natively = 0
    for value in [*INTEGERS, True]:
        kernel = kernels.TYPED[name]
        call = lambda kernel=kernel, value=value: kernel[(1,)](out, value)  # noqa: E731
        packed = _core.launch_pack(name, value)
        found = compare(call, native=packed is not None)
        natively += found.native
    assert natively > 5


@pytest.mark.parametrize("name", ["fp16", "bf16", "fp32", "fp64"])
def test_annotated_floats_are_rounded_as_in_triton(
    launcher: Any, kernels: Any, out: Any, name: str
) -> None:
    for value in [*FLOATS, 3, True]:
        packed = _core.launch_pack(name, value)
        kernel = kernels.TYPED[name]
        call = lambda kernel=kernel, value=value: kernel[(1,)](out, value)  # noqa: E731
        found = compare(call, native=packed is not None)
        assert found.launches or packed is None


def test_halves_are_those_of_python() -> None:
    """Python's own conversion is the reference; every half, and what lies around and between them."""
    for bits in range(0x7C00):
        (half,) = struct.unpack("<e", struct.pack("<H", bits))
        (above,) = struct.unpack("<e", struct.pack("<H", min(bits + 1, 0x7BFF)))
        for value in (half, (half + above) / 2, math.nextafter((half + above) / 2, 0)):
            expected = int.from_bytes(struct.pack("<e", -value), "little")
            assert _core.launch_pack("fp16", -value) == expected, value
    for value in (65520.0, 1e6, -65520.0):
        with pytest.raises(OverflowError):
            struct.pack("<e", value)
        assert _core.launch_pack("fp16", value) is None
    assert _core.launch_pack("fp16", math.nextafter(65520.0, 0)) == 0x7BFF


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.bool, torch.uint8]
)
@pytest.mark.parametrize("offset", [0, 8, 16])
def test_tensors_are_passed_by_address(
    launcher: Any, kernels: Any, out: Any, dtype: torch.dtype, offset: int
) -> None:
    tensor = simulated.tensor(64, dtype, offset)
    assert (tensor.data_ptr() % 16 == 0) == (offset % 16 == 0)
    found = compare(lambda: kernels.one[(1,)](out, tensor))
    assert f"parameter 8 {tensor.data_ptr()}" in found.launches[0]
    assert _core.launch_read_tensor(tensor) is not None, "it was read without Python"


class Pointer:
    """A double of FlagGems' strided buffers, as Triton sees them."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor, self.dtype = tensor, tensor.dtype

    def data_ptr(self) -> int:
        return self.tensor.data_ptr()


def test_an_interrupt_is_not_lost(launcher: Any, kernels: Any, out: Any) -> None:
    value = Pointer(out)
    compare(lambda: kernels.one[(1,)](out, value))
    interrupted = iter([KeyboardInterrupt])

    def data_ptr() -> int:
        for error in interrupted:
            raise error
        return out.data_ptr()

    value.data_ptr = data_ptr  # type: ignore[method-assign]

    def launch() -> None:
        kernels.one[(1,)](out, value)
        time.sleep(0)  # where Python looks for interrupts

    with pytest.raises(KeyboardInterrupt):
        launch()


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "wrap",
    [
        torch.nn.Parameter,
        Pointer,
        lambda tensor: tensor.as_subclass(Subclass),
        lambda tensor: tensor[3:],
        lambda tensor: tensor[:0],
    ],
    ids=["parameter", "object", "subclass", "view", "empty"],
)
def test_everything_with_an_address_is_passed(
    launcher: Any, kernels: Any, out: Any, wrap: Any
) -> None:
    value = wrap(simulated.tensor(64, torch.float32))
    compare(lambda: kernels.one[(1,)](out, value))


def test_memory_that_kernels_do_not_reach_is_refused(launcher: Any, kernels: Any, out: Any) -> None:
    here, there = simulated.tensor(64, torch.float32), torch.ones(64)
    for _ in range(4):
        assert outcome(lambda: kernels.one[(1,)](out, here)).raised is None
    found = compare(lambda: kernels.one[(1,)](out, there), native=False)
    assert found.raised is not None and "cpu tensor?" in found.raised[1]


def test_addresses_may_be_numbers(launcher: Any, kernels: Any, out: Any) -> None:
    """A kernel compiled for a pointer is only ever found by something that has an address."""
    compare(lambda: kernels.one[(1,)](out, out.data_ptr()))
    compare(lambda: kernels.one[(1,)](out, None))


def test_many_arguments_by_position_and_by_name(launcher: Any, kernels: Any, out: Any) -> None:
    many = kernels.many
    compare(lambda: many[(1,)](out, 1, 16, 3, 0.5, True))
    compare(lambda: many[(1,)](out, 1, 16, 3, 0.5, True, FLAG=True))
    compare(lambda: many[(1,)](out, 1, 16, 3, e=0.5, d=None, f=2**40, g=out))
    compare(lambda: many[(1,)](a=1, out=out, b=2, c=3, d=4, e=5))
    compare(lambda: many[(1,)](out, 1, 2, 3, 4, 5, 6, 7, True))
    for wrong in (
        lambda: many[(1,)](out, 1),
        lambda: many[(1,)](out, 1, 2, 3, 4, 5, 6, 7, 8, 9),
        lambda: many[(1,)](out, 1, 2, 3, 4, 5, a=1),
        lambda: many[(1,)](out, 1, 2, 3, 4, 5, no_such_option=1),
    ):
        assert compare(wrong, native=False).raised is not None


def test_unspecialized_parameters(launcher: Any, kernels: Any, out: Any) -> None:
    for a, b, c in [(1, 1, 1), (16, 16, 16), (17, 32, 48), (2**40, 1, out), (out, out, 3)]:
        compare(lambda a=a, b=b, c=c: kernels.unspecialized[(1,)](out, a, b, c))
    before = launcher.statistics()["native"]
    for a in range(100, 120):
        kernels.unspecialized[(1,)](out, a, 1, 1)
    assert launcher.statistics()["native"] == before + 20, "they share one plan"


def test_constants_of_every_kind(launcher: Any, kernels: Any, out: Any) -> None:
    import triton.language as tl

    kinds = [1, True, 1.0, 0, False, 0.0, -0.0, None, "text", tl.float32, tl.int64, torch.float32]
    kinds += [(1, 2), (1, (True, "a")), 2**70, kernels.add]
    for kind in kinds:
        native = kind != 2**70
        compare(lambda kind=kind: kernels.constant[(1,)](out, kind), native=native)


@pytest.mark.parametrize(
    "options",
    [
        {"num_warps": 1},
        {"num_warps": 8, "num_stages": 5},
        {"num_ctas": 2},
        {"num_ctas": 4, "num_warps": 2},
        {"launch_pdl": True},
        {"launch_cooperative_grid": True},
        {"maxnreg": 64},
    ],
    ids=str,
)
def test_options_shape_the_launch(
    launcher: Any, kernels: Any, out: Any, options: dict[str, Any]
) -> None:
    found = compare(lambda: kernels.one[(3, 2)](out, 5, **options))
    if "num_warps" in options:
        assert f"block {32 * options['num_warps']} 1 1" in found.launches[0]
    if "num_ctas" in options:
        clusters = options["num_ctas"]
        assert f"grid {3 * clusters} 2 1" in found.launches[0]
        assert f"attribute 4 {clusters} 1 1 attribute 5 1" in found.launches[0]


def test_the_current_stream_is_used(launcher: Any, kernels: Any, out: Any, driver: Any) -> None:
    stream = simulated.library().stream()
    for current in (0, stream, 0):
        driver.stream = current
        found = compare(lambda: kernels.one[(1,)](out, 3))
        assert f" stream {current} " in found.launches[0]


def test_shared_memory_is_asked_for(launcher: Any, driver: Any) -> None:
    from adapters.torch.tests.launcher import reductions

    tensor = simulated.tensor(4096, torch.float32)
    found = compare(lambda: reductions.total[(1,)](tensor, tensor, 4096, BLOCK=4096))
    assert " shared 0 " not in found.launches[0]


def test_the_comparison_sees_a_difference(launcher: Any, kernels: Any, out: Any) -> None:
    """The control: the comparisons above find a wrong parameter."""
    import itertools

    counter = itertools.count(2)
    with pytest.raises(AssertionError):
        compare(lambda: kernels.one[(1,)](out, next(counter)))
    grids = itertools.count(1)
    with pytest.raises(AssertionError):
        compare(lambda: kernels.one[(next(grids),)](out, 7))


def test_the_comparison_sees_a_wrong_plan(
    launcher: Any, kernels: Any, out: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch_fl.launcher import jit

    right = jit.passed
    monkeypatch.setattr(jit, "passed", lambda kernel, found: right(kernel, found)[::-1])
    other = simulated.tensor(64, torch.float64)
    with pytest.raises(AssertionError):
        compare(lambda: kernels.many[(1,)](out, other, 21, 23, 25, 27))
