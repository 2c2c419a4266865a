"""Every operator of `quantized::` computes on the device what it computes on the CPU.

`CASES` has inputs for each operator with a kernel for CPU tensors, quantized or not; `NOT_COVERED`
says why one has none. The lists are compared with torch's own, so that neither can be incomplete.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import torch_fl

pytestmark = pytest.mark.needs("cpu_kernels")

ops = torch.ops.quantized

# A case gets a function that moves tensors to where the operator is to run, and returns arguments.
Move = Callable[[torch.Tensor], torch.Tensor]
Case = Callable[[Move], tuple[Any, ...]]

SCALE, ZERO = 0.07, 3  # of outputs


def real(*shape: int) -> torch.Tensor:
    """Values of both signs, the same for a shape each time."""
    count = math.prod(shape)
    return torch.sin(torch.arange(float(count)) * 1.7 + len(shape)).mul(3).reshape(shape)


def q(*shape: int, dtype: torch.dtype = torch.quint8) -> torch.Tensor:
    zero = 128 if dtype == torch.quint8 else 0
    return torch.quantize_per_tensor(real(*shape), 0.05, zero, dtype)


def weight(*shape: int) -> torch.Tensor:
    return q(*shape, dtype=torch.qint8)


def per_channel(*shape: int, axis: int = 0) -> torch.Tensor:
    channels = shape[axis]
    scales = torch.linspace(0.03, 0.06, channels, dtype=torch.float64)
    zeros = torch.zeros(channels, dtype=torch.int64)
    return torch.quantize_per_channel(real(*shape), scales, zeros, axis, torch.qint8)


def rows(to: Move, dtype: torch.dtype) -> torch.Tensor:
    """An embedding table as the packed parameters take it, quantized where it is to be."""
    scale, zero = (0.5, 7.0) if dtype == torch.quint4x2 else (0.03, 100.0)
    scales, zeros = to(torch.full((10,), scale)), to(torch.full((10,), zero))
    # torch cannot copy types of less than a byte, so the table is not moved.
    return torch.quantize_per_channel(to(real(10, 16)), scales, zeros, 0, dtype)


INDICES, OFFSETS = torch.tensor([1, 0, 4, 9, 4]), torch.tensor([0, 2, 2])


def pointwise(to: Move) -> tuple[Any, ...]:
    return to(q(2, 3, 4)), to(q(2, 3, 4)), SCALE, ZERO


def both_and_out(to: Move) -> tuple[Any, ...]:
    return to(q(2, 3, 4)), to(q(2, 3, 4)), to(q(2, 3, 4))


def scalar_and_out(to: Move) -> tuple[Any, ...]:
    return to(q(2, 3)), 0.5, to(q(2, 3))


def tensor_scalar_and_out(to: Move) -> tuple[Any, ...]:
    return to(q(2, 3)), to(torch.tensor(0.5)), to(q(2, 3))


def norm(*shape: int) -> Case:
    c = shape[1]
    return lambda to: (
        to(q(*shape)),
        to(real(c)),
        to(real(c, 1)[:, 0]),
        to(real(c)),
        to(real(c).abs() + 1),
        1e-5,
        SCALE,
        ZERO,
    )


def _conv_arguments(spatial: int, transposed: bool) -> tuple[Any, ...]:
    one = [1] * spatial
    return (
        ([2] * spatial, one, [0] * spatial, one, 1) if transposed else ([2] * spatial, one, one, 1)
    )


def _packed(spatial: int, transposed: bool, to: Move, channelwise: bool) -> Any:
    shape = (3, 4, *([3] * spatial)) if transposed else (4, 3, *([3] * spatial))
    made = per_channel(*shape) if channelwise else weight(*shape)
    name = f"conv{'_transpose' if transposed else ''}{spatial}d_prepack"
    return getattr(ops, name)(to(made), to(real(4)), *_conv_arguments(spatial, transposed))


def conv(spatial: int, *, transposed: bool = False) -> list[Case]:
    def case(channelwise: bool) -> Case:
        return lambda to: (
            to(q(2, 3, *([6] * spatial))),
            _packed(spatial, transposed, to, channelwise),
            SCALE,
            ZERO,
        )

    return [case(False)] if transposed else [case(False), case(True)]


def conv_dynamic(spatial: int, *, transposed: bool = False) -> Case:
    return lambda to: (
        to(real(2, 3, *([6] * spatial))),
        _packed(spatial, transposed, to, channelwise=False),
    )


def conv_prepack(spatial: int, *, transposed: bool = False) -> Case:
    shape = (3, 4, *([3] * spatial)) if transposed else (4, 3, *([3] * spatial))
    return lambda to: (to(weight(*shape)), to(real(4)), *_conv_arguments(spatial, transposed))


def conv_unnamed(spatial: int) -> Case:
    # The first form of the operator repeats what is packed.
    return lambda to: (
        to(q(2, 3, *([6] * spatial))),
        _packed(spatial, False, to, channelwise=False),
        *_conv_arguments(spatial, False),
        SCALE,
        ZERO,
    )


def conv_add(to: Move) -> tuple[Any, ...]:
    x, packed = to(q(2, 3, 6, 6)), _packed(2, False, to, channelwise=False)
    return x, ops.conv2d(x, packed, SCALE, ZERO), packed, SCALE, ZERO


def linear(to: Move) -> tuple[Any, ...]:
    return to(q(5, 8)), ops.linear_prepack(to(weight(4, 8)), to(real(4))), SCALE, ZERO


def linear_channelwise(to: Move) -> tuple[Any, ...]:
    return to(q(5, 8)), ops.linear_prepack(to(per_channel(4, 8)), to(real(4))), SCALE, ZERO


def linear_dynamic(to: Move) -> tuple[Any, ...]:
    return to(real(5, 8)), ops.linear_prepack(to(weight(4, 8)), to(real(4)))


def linear_fp16(to: Move) -> tuple[Any, ...]:
    return to(real(5, 8)), ops.linear_prepack_fp16(to(real(4, 8)), to(real(4)))


def linear_fake(to: Move) -> tuple[Any, ...]:
    return to(real(5, 8)), 0.05, 128, ops.linear_prepack(to(weight(4, 8)), to(real(4)))


def cell(gates: int, hidden: Callable[[Move], Any]) -> Case:
    def case(to: Move) -> tuple[Any, ...]:
        n = 4 * gates
        inputs = ops.linear_prepack(to(weight(n, 8)), to(real(n)))
        states = ops.linear_prepack(to(weight(n, 4)), to(real(n)))
        return to(real(2, 8)), hidden(to), inputs, states, to(real(n)), to(real(n))

    return case


def hidden(to: Move) -> torch.Tensor:
    return to(real(2, 4))


def table(bits: int) -> torch.dtype:
    return torch.quint8 if bits == 8 else torch.quint4x2


def bag(bits: int) -> Case:
    return lambda to: (
        ops.embedding_bag_prepack(rows(to, table(bits))),
        to(INDICES),
        to(OFFSETS),
    )


def bag_rowwise(prepack: Callable[[torch.Tensor], torch.Tensor]) -> Case:
    return lambda to: (prepack(to(real(10, 16))), to(INDICES), to(OFFSETS))


def lookup(bits: int) -> Case:
    return lambda to: (ops.embedding_bag_prepack(rows(to, table(bits))), to(INDICES))


def min_max(to: Move) -> tuple[Any, ...]:
    x = real(10, 16)
    return to(x), to(torch.stack([x.amin(1), x.amax(1)], 1))


UNARY: Case = lambda to: (to(q(2, 3, 4)), SCALE, ZERO)  # noqa: E731

CASES: dict[str, Case | list[Case]] = {
    **dict.fromkeys(["add", "add_relu", "mul", "mul_relu"], pointwise),
    "matmul": lambda to: (to(q(2, 3, 4)), to(q(2, 4, 5)), SCALE, ZERO),
    **{
        f"{op}{form}": both_and_out
        for op in ("add", "add_relu", "mul", "mul_relu")
        for form in (".out", "_out")
    },
    **{
        f"{op}.{form}": (lambda to: (to(q(2, 3)), 0.5))
        if form == "Scalar"
        else (lambda to: (0.5, to(q(2, 3))))
        for op in ("add", "add_relu", "mul", "mul_relu")
        for form in ("Scalar", "Scalar2")
    },
    **{f"{op}.Scalar_out": scalar_and_out for op in ("add", "add_relu", "mul", "mul_relu")},
    **{
        f"{op}_scalar{relu}": lambda to: (to(q(2, 3)), 0.5)
        for op in ("add", "mul")
        for relu in ("", "_relu")
    },
    **{
        f"{op}_scalar{relu}.Tensor": lambda to: (to(q(2, 3)), to(torch.tensor(0.5)))
        for op in ("add", "mul")
        for relu in ("", "_relu")
    },
    **{f"{op}_scalar{relu}_out": scalar_and_out for op in ("add", "mul") for relu in ("", "_relu")},
    **{
        f"{op}_scalar{relu}_out.Tensor": tensor_scalar_and_out
        for op in ("add", "mul")
        for relu in ("", "_relu")
    },
    **{
        f"batch_norm{dims}{relu}": norm(*shape)
        for dims, shape in (
            ("", (2, 3, 4, 4)),
            ("1d", (2, 3, 4)),
            ("2d", (2, 3, 4, 4)),
            ("3d", (2, 3, 2, 4, 4)),
        )
        for relu in ("", "_relu")
    },
    **{
        op: [
            lambda to: ([to(q(2, 3)), to(q(4, 3))], 0, SCALE, ZERO),
            lambda to: ([to(q(2, 3)), to(q(2, 5))], 1, None, None),
        ]
        for op in ("cat", "cat_relu")
    },
    **dict.fromkeys(
        ["cat_out", "cat_relu_out"],
        lambda to: ([to(q(2, 3)), to(q(4, 3))], 0, to(q(6, 3))),
    ),
    "celu": lambda to: (to(q(2, 3, 4)), SCALE, ZERO, 0.7),
    "elu": lambda to: (to(q(2, 3, 4)), SCALE, ZERO, 0.7),
    "clamp": lambda to: (to(q(2, 3, 4)), -1.0, 1.5),
    "dropout": lambda to: (to(q(2, 3, 4)), SCALE, ZERO, 0.5, False),
    **dict.fromkeys(["hardswish", "sigmoid"], UNARY),
    "leaky_relu": [
        lambda to: (to(q(2, 3, 4)), 0.1, False, SCALE, ZERO),
        lambda to: (to(q(2, 3, 4)), 0.1, True, SCALE, ZERO),
    ],
    "prelu": lambda to: (to(q(2, 3, 4)), to(q(3)), SCALE, ZERO),
    "relu6": [lambda to: (to(q(2, 3, 4)),), lambda to: (to(q(2, 3, 4)), True)],
    "softmax": lambda to: (to(q(2, 3, 4)), 1, SCALE, ZERO),
    "threshold": lambda to: (to(q(2, 3, 4)), 0.5, 1.0),
    "group_norm": lambda to: (to(q(2, 4, 6)), 2, to(real(4)), to(real(4)), 1e-5, SCALE, ZERO),
    "instance_norm": lambda to: (to(q(2, 4, 6)), to(real(4)), to(real(4)), 1e-5, SCALE, ZERO),
    "layer_norm": lambda to: (to(q(2, 4, 6)), [6], to(real(6)), to(real(6)), 1e-5, SCALE, ZERO),
    "max_pool1d": lambda to: (to(q(2, 3, 8)), [2], [2], [1], [1], False),
    "max_pool2d": lambda to: (to(q(2, 3, 8, 8)), [2, 3], [2, 1], [1, 1], [1, 1], True),
    **{f"conv{n}d": conv(n) for n in (1,)},
    "conv1d_relu": conv(1),
    **{f"conv{n}d{relu}": conv_unnamed(n) for n in (2, 3) for relu in ("", "_relu")},
    **{f"conv{n}d{relu}.new": conv(n) for n in (2, 3) for relu in ("", "_relu")},
    **{f"conv{n}d_dynamic": conv_dynamic(n) for n in (1, 2, 3)},
    **{f"conv{n}d_prepack": conv_prepack(n) for n in (1, 2, 3)},
    "conv_prepack": conv_prepack(2),
    **{f"conv_transpose{n}d": conv(n, transposed=True) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d_dynamic": conv_dynamic(n, transposed=True) for n in (1, 2, 3)},
    **{f"conv_transpose{n}d_prepack": conv_prepack(n, transposed=True) for n in (1, 2, 3)},
    **dict.fromkeys(["conv2d_add", "conv2d_add_relu"], conv_add),
    **{op: [linear, linear_channelwise] for op in ("linear", "linear_relu")},
    "linear_leaky_relu": lambda to: (*linear(to), 0.1),
    "linear_tanh": linear,
    **dict.fromkeys(["linear_dynamic", "linear_relu_dynamic"], linear_dynamic),
    **dict.fromkeys(["linear_dynamic_fp16", "linear_relu_dynamic_fp16"], linear_fp16),
    "linear_dynamic_fp16_unpacked_weight": lambda to: (to(real(5, 8)), to(real(4, 8)), to(real(4))),
    **dict.fromkeys(
        [
            "linear_with_input_q_dq_qweight_dq_output_fp32",
            "linear_with_input_q_dq_qweight_dq_relu_output_fp32",
        ],
        linear_fake,
    ),
    "linear_prepack": [
        lambda to: (to(weight(4, 8)), to(real(4))),
        lambda to: (to(per_channel(4, 8)), None),
    ],
    "linear_prepack_fp16": lambda to: (to(real(4, 8)), to(real(4))),
    "quantized_lstm_cell_dynamic": cell(4, lambda to: [hidden(to), hidden(to)]),
    "quantized_gru_cell_dynamic": cell(3, hidden),
    **dict.fromkeys(
        ["quantized_rnn_relu_cell_dynamic", "quantized_rnn_tanh_cell_dynamic"], cell(1, hidden)
    ),
    "embedding_bag_prepack": [
        lambda to: (rows(to, torch.quint8),),
        lambda to: (rows(to, torch.quint4x2),),
    ],
    "embedding_bag_byte": bag(8),
    "embedding_bag_4bit": bag(4),
    "embedding_byte": lookup(8),
    "embedding_4bit": lookup(4),
    **{
        f"embedding_bag_{n}_prepack": lambda to: (to(real(10, 16)),)
        for n in ("byte", "4bit", "2bit")
    },
    **{
        f"embedding_bag_{n}_prepack_with_rowwise_min_max": min_max for n in ("byte", "4bit", "2bit")
    },
    **{
        f"embedding_bag_{n}_rowwise_offsets": bag_rowwise(
            getattr(ops, f"embedding_bag_{n}_prepack")
        )
        for n in ("byte", "4bit", "2bit")
    },
    **{
        f"embedding_bag_{n}_unpack": lambda to, n=n: (
            getattr(ops, f"embedding_bag_{n}_prepack")(to(real(10, 16))),
        )
        for n in ("byte", "4bit", "2bit")
    },
}

_LEGACY = "the tensor it makes or takes stands for a C++ object of the process"
_CELL = "makes an object without methods, for the recurrent operators of aten"
NOT_COVERED = {
    "linear_prepack_legacy": _LEGACY,
    "linear_prepack_fp16_legacy": _LEGACY,
    "linear_unpack.legacy": _LEGACY,
    "linear_unpack_fp16.legacy": _LEGACY,
    "make_quantized_cell_params": _CELL,
    "make_quantized_cell_params_dynamic": _CELL,
    "int4mm_packed_weight_cpu": "its weights are packed by an operator of aten for one processor",
}

# Fused with what follows by oneDNN alone.
ONEDNN = {"conv2d_add", "conv2d_add_relu", "linear_leaky_relu", "linear_tanh"}


def overload(name: str) -> torch._ops.OpOverload:
    base, _, form = name.partition(".")
    found = getattr(getattr(ops, base), form or "default")
    assert isinstance(found, torch._ops.OpOverload)
    return found


def with_kernels() -> set[str]:
    """Operators of the namespace with a kernel for CPU tensors, quantized or not."""
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    names = torch._C._dispatch_get_all_op_names()
    return {
        name.removeprefix("quantized::")
        for name in names
        if name.startswith("quantized::")
        and (has_kernel(name, "CPU") or has_kernel(name, "QuantizedCPU"))
    }


def parts(value: Any) -> Iterator[Any]:
    """The plain tensors and numbers in a result."""
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from parts(item)
    elif isinstance(value, torch.ScriptObject):
        yield from parts(value.unpack())  # type: ignore[attr-defined]
    elif isinstance(value, torch.Tensor) and value.is_quantized:
        if value.qscheme() == torch.per_tensor_affine:
            yield from (value.q_scale(), value.q_zero_point())
        else:
            yield from (value.q_per_channel_scales(), value.q_per_channel_zero_points())
        yield value.dequantize()
    else:
        yield value


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.cpu(), b.cpu())
    return bool(a == b)


def all_cases() -> list[Any]:
    return [
        pytest.param(name, case, id=f"{name}-{i}")
        for name, cases in CASES.items()
        for i, case in enumerate(cases if isinstance(cases, list) else [cases])
    ]


@pytest.fixture
def engine(request):
    before = torch.backends.quantized.engine
    wanted = "onednn" if request.getfixturevalue("name") in ONEDNN else before
    if wanted not in torch.backends.quantized.supported_engines:
        pytest.skip(f"torch was built without {wanted}")
    torch.backends.quantized.engine = wanted
    yield
    torch.backends.quantized.engine = before


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(("name", "case"), all_cases())
def test_it_computes_what_the_cpu_computes(name, case):
    op = overload(name)
    here, there = case(lambda t: t), case(lambda t: t.to("flagos"))
    expected = op(*here)
    torch_fl.reset_counters()
    got = op(*there)
    assert torch_fl.counters()[f"quantized::{name}"]["calls"] == 1
    results = list(zip(parts(expected), parts(got), strict=True))
    assert results
    for a, b in results:
        assert equal(a, b)
    if isinstance(got, torch.Tensor):
        assert got.device.type == "flagos"
    for argument, before in zip(there, here, strict=True):  # arguments that are written in place
        if isinstance(argument, torch.Tensor):
            assert all(equal(a, b) for a, b in zip(parts(before), parts(argument), strict=True))
            assert argument.device.type == "flagos"


def test_every_operator_is_covered_or_has_a_reason():
    assert with_kernels() == CASES.keys() | NOT_COVERED.keys()
    assert not CASES.keys() & NOT_COVERED.keys()


@pytest.mark.parametrize("name", sorted(with_kernels()))
def test_it_is_in_the_plan(name, native_implementations):
    # No library serves quantized tensors.
    expected = native_implementations & {"cpu.fallback"} or native_implementations
    assert torch_fl.explain(f"quantized::{name}").data["winner"] in expected


def test_the_comparison_finds_a_difference():
    x = q(2, 3)
    other = x.clone()
    other[0, 0] = 9.0
    for a, b in (
        (x, other),
        ((x, 1), (x, 2)),
        (x, torch.quantize_per_tensor(real(2, 3), 0.06, 128, torch.quint8)),
    ):
        assert not all(equal(c, d) for c, d in zip(parts(a), parts(b), strict=True))
    first, second = (ops.linear_prepack(weight(4, 8), bias) for bias in (real(4), real(4) + 1))
    assert not all(equal(c, d) for c, d in zip(parts(first), parts(second), strict=True))
