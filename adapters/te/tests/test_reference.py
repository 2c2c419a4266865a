"""``reference.torch``: one plain formula for every operator, chosen like any other implementation.

The tests of the operators (``test_gemm`` and the others) hold the formulas to definitions in float64 on the CPU. Here
every one of them runs in float32 on the CPU and on the device, beside itself in float64.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch

from adapters.te.tests.oracle import agrees, tensor
from adapters.te.tests.processes import run
from te_fl import operators, reference
from te_fl.core import BackendImplKind, OpImpl, OpManager, UnsupportedError, with_preference
from te_fl.core.ops import NVTE_QKV_Layout

_Maker = Callable[..., torch.Tensor]
_Case = Callable[[_Maker, torch.device], Any]


class _Float8:
    """The attributes of TransformerEngine's Float8Tensor."""

    def __init__(self, data: torch.Tensor, scale_inv: torch.Tensor) -> None:
        self._data, self._scale_inv, self._transpose = data, scale_inv, None
        self._fp8_dtype = 7
        self.shape = data.shape


class Float8Quantizer:
    """The attributes of TransformerEngine's, by whose name it is recognized."""

    dtype = 7

    def __init__(self, device: torch.device) -> None:
        self.scale = torch.full((1,), 4.0, device=device)
        self.amax = torch.zeros(1, device=device)

    def make_empty(self, shape: tuple[int, ...], **_: Any) -> _Float8:
        device = self.scale.device
        data = torch.zeros(shape, dtype=torch.uint8, device=device)
        return _Float8(data, torch.zeros(1, device=device))


def _float8(device: torch.device) -> _Float8:
    data = tensor(3, 4).to(torch.float8_e4m3fn).view(torch.uint8)
    return _Float8(data.to(device), torch.full((1,), 0.25, device=device))


def _flag(device: torch.device) -> torch.Tensor:
    return torch.zeros(1, dtype=torch.int32, device=device)


def _freqs(device: torch.device) -> torch.Tensor:
    return (torch.arange(8)[:, None] * torch.tensor([1.0, 0.1, 1.0, 0.1]))[:, None, None].to(device)


_STEP = (0.01, 0.9, 0.99, 1e-6, 3, 1, 1, 0.1)


def _moments(t: _Maker) -> list[list[torch.Tensor]]:
    return [[t(4, 5)], [t(4, 5, seed=1)], [t(4, 5, seed=2)], [t(4, 5, seed=3).abs()]]


def _capturable(t: _Maker, device: torch.device) -> tuple[Any, ...]:
    lr, step = torch.full((1,), 0.01, device=device), torch.full((1,), 3, device=device)
    inverse = torch.full((1,), 0.5, device=device)
    return lr, 0.9, 0.99, 1e-6, step, 1, 1, 0.1, inverse


def _adam_fp8(t: _Maker, device: torch.device) -> tuple[Any, ...]:
    grads, masters, firsts, seconds = _moments(t)
    data = [torch.zeros(4, 5, dtype=torch.uint8, device=device)]
    single = [[torch.full((1,), value, device=device)] for value in (8.0, 0.0, 0.0)]
    return 1, _flag(device), [grads, data, firsts, seconds, masters, *single], *_STEP, 7


def _remainder(t: _Maker, device: torch.device) -> tuple[Any, ...]:
    grads, params, firsts, seconds = _moments(t)
    low = [torch.zeros(4, 5, dtype=torch.int16, device=device)]
    return 1, _flag(device), [grads, [params[0].bfloat16()], firsts, seconds, low], *_STEP


def _experts(device: torch.device) -> torch.Tensor:
    return torch.tensor([[1, 0], [2, 1], [0, 2]], device=device)


def _rows(device: torch.device) -> torch.Tensor:
    return torch.tensor([2, 4, 1, 0, 3, -1], dtype=torch.int32, device=device)


def _attention(t: _Maker, backward: bool) -> tuple[Any, ...]:
    layout = NVTE_QKV_Layout.NVTE_BSHD_BSHD_BSHD
    tensors = [t(2, 5, 4, 8), t(2, 5, 2, 8, seed=1), t(2, 5, 2, 8, seed=2)]
    kinds = (layout, 0, 2, 0, (3, 0), False)
    if backward:
        more = [t(2, 5, 4, 8, seed=3), t(2, 5, 4, 8, seed=4)]
        return 5, 5, 0.3, 0.0, True, *kinds, True, None, None, *tensors, *more
    return 5, 5, True, 0.3, 0.0, True, *kinds, None, None, *tensors


def _module(t: _Maker) -> Callable[..., Any]:
    """What the class computes, in the place of the operator that returns it."""
    q, k, v = (t(5, 2, 4, 8, seed=i) for i in range(3))
    return lambda cls: cls(0.3)(q, k, v, qkv_layout="sbhd_sbhd_sbhd", attn_mask_type="causal")


# D and what follows it: a plain product.
_GEMM = (None, None, None, None, None, False, None, False, None, 0, False, False)
_NONE = torch.empty(0)

#: Operator → its arguments, of tensors from a maker and on a device.
CASES: dict[str, _Case] = {
    **{name: lambda t, _: (t(3, 8), None) for name in ("gelu", "qgelu", "relu", "srelu", "silu")},
    **{
        name: lambda t, _: (t(3, 8), None)
        for name in ("geglu", "qgeglu", "reglu", "sreglu", "swiglu", "glu", "clamped_swiglu")
    },
    **{
        f"{prefix}{name}": lambda t, _: (t(3, 8, seed=1), t(3, 8), None)
        for name in ("gelu", "qgelu", "relu", "srelu", "silu")
        for prefix in ("d", "dbias_d")
    },
    **{
        name: lambda t, _: (t(3, 4, seed=1), t(3, 8), None)
        for name in ("dgeglu", "dqgeglu", "dreglu", "dsreglu", "dswiglu", "dglu", "clamped_dswiglu")
    },
    "fused_attn_fwd": lambda t, _: _attention(t, backward=False),
    "fused_attn_bwd": lambda t, _: _attention(t, backward=True),
    "get_flash_attention_class": lambda t, _: _module(t),
    "dropout_fwd": lambda t, _: (t(3, 5), 0.0),
    "dropout_bwd": lambda t, device: (
        t(3, 5),
        torch.tensor([0b10110101, 0b1101001], dtype=torch.uint8, device=device),
        0.25,
    ),
    "generic_gemm": lambda t, _: (t(7, 3), True, t(5, 3), False, *_GEMM),
    "te_general_grouped_gemm": lambda t, device: (
        [t(3, 7), t(3, 7, seed=1)], False, [t(4, 3), t(2, 3)], False, [t(4, 7), t(2, 7)], None, [],
        [t(7), t(7)], None, False, [_NONE] * 2, False, None, 0, True, False,
    ),
    "multi_tensor_adam": lambda t, device: (1, _flag(device), _moments(t), *_STEP),
    "multi_tensor_adam_capturable": lambda t, device: (
        1, _flag(device), _moments(t), *_capturable(t, device),
    ),
    "multi_tensor_adam_capturable_master": lambda t, device: (
        1, _flag(device), [*_moments(t), [t(4, 5, seed=9)]], *_capturable(t, device),
    ),
    "multi_tensor_adam_fp8": _adam_fp8,
    "multi_tensor_adam_param_remainder": _remainder,
    "multi_tensor_l2norm": lambda t, device: (1, _flag(device), [[t(3, 2), t(4)]], True),
    "multi_tensor_scale": lambda t, device: (
        1, _flag(device), [[t(3, 2), t(4)], [t(3, 2), t(4)]], 0.25,
    ),
    "multi_tensor_scale_tensor": lambda t, device: (
        1, _flag(device), [[t(3, 2)], [t(3, 2)]], torch.full((1,), 3.0, device=device),
    ),
    "multi_tensor_sgd": lambda t, device: (
        1, _flag(device), _moments(t)[:3], 0.1, 0.9, 0.2, 0.05, True, False, False, 2.0,
    ),
    "multi_tensor_unscale_l2norm": lambda t, device: (
        1, _flag(device), [[t(3, 2), t(4)]], torch.full((1,), 0.5, device=device), True,
    ),
    "layernorm_fwd": lambda t, _: (t(3, 8), t(8), t(8, seed=1), 1e-3),
    "layernorm_bwd": lambda t, _: (t(3, 8, seed=1), t(3, 8), t(3), t(3, seed=1).abs(), t(8)),
    "rmsnorm_fwd": lambda t, _: (t(3, 8), t(8), 1e-3),
    "rmsnorm_bwd": lambda t, _: (t(3, 8, seed=1), t(3, 8), t(3, seed=1).abs(), t(8)),
    "rmsnorm_bwd_add": lambda t, _: (
        t(3, 8, seed=1), t(3, 8), t(3, 8, seed=2), t(3, seed=1).abs(), t(8),
    ),
    "moe_permute_fwd": lambda t, device: (t(3, 4), None, _experts(device), 5, [], 6),
    "moe_permute_bwd": lambda t, device: (t(5, 4), None, _rows(device), None, 3, 2),
    "moe_unpermute_fwd": lambda t, device: (t(5, 4), None, _rows(device), t(3, 2), 3, 2),
    "moe_unpermute_bwd": lambda t, device: (t(3, 4), t(5, 4), None, _rows(device), t(3, 2)),
    "bgrad_quantize": lambda t, device: (t(3, 4), Float8Quantizer(device)),
    "compute_amax": lambda t, _: (t(3, 4), t(1)),
    "dequantize": lambda t, device: (_float8(device), 4),
    "fp8_transpose": lambda t, device: (_float8(device)._data, 7),
    "multi_tensor_compute_scale_and_scale_inv": lambda t, device: (
        1, _flag(device), [[t(4).abs()], [t(4)], [t(4)]], 448.0, True, 0.5,
    ),
    "multi_tensor_quantize": lambda t, device: (
        [t(3, 4), t(2)], [Float8Quantizer(device), Float8Quantizer(device)],
    ),
    "quantize": lambda t, device: (t(3, 4), Float8Quantizer(device)),
    "split_quantize": lambda t, device: (t(5, 4), [2, 3], [Float8Quantizer(device), None]),
    "swap_first_dims": lambda t, _: (t(2, 3, 4),),
    "fused_rope_forward": lambda t, device: (t(6, 2, 3, 6), _freqs(device)),
    "fused_rope_backward": lambda t, device: (t(6, 2, 3, 6), _freqs(device)),
    "fused_qkv_rope_forward": lambda t, device: (
        t(6, 2, 3, 24), _freqs(device), _freqs(device), None, [12, 6, 6],
    ),
    "fused_qkv_rope_backward": lambda t, device: (
        t(6, 2, 6, 6), t(6, 2, 3, 6), t(6, 2, 3, 6, seed=1), _freqs(device), _freqs(device),
        [12, 6, 6],
    ),
    "scaled_aligned_causal_masked_softmax_forward": lambda t, _: (t(2, 3, 5), 0.3),
    "scaled_masked_softmax_forward": lambda t, device: (
        t(2, 1, 3, 5), (tensor(2, 1, 3, 5, seed=1) > 0.3).to(device), 0.3,
    ),
    "scaled_softmax_forward": lambda t, _: (t(2, 3, 5), 0.3),
    "scaled_upper_triang_masked_softmax_forward": lambda t, _: (t(2, 4, 4), 0.3),
    **{
        f"scaled_{kind}softmax_backward": lambda t, _: (t(2, 4, 4), t(2, 4, 4, seed=1).softmax(-1), 0.3)
        for kind in ("", "masked_", "upper_triang_masked_", "aligned_causal_masked_")
    },
}  # fmt: skip


def _tensors(value: Any) -> list[torch.Tensor]:
    """Every tensor in a result or in arguments, quantized ones and quantizers included, as float64 on the CPU."""
    if isinstance(value, torch.Tensor):
        # An int16 tensor has the lower half of a float32 number: the last bit of the number may change all of it.
        return [] if value.dtype == torch.int16 else [value.detach().cpu().double()]
    if isinstance(value, list | tuple):
        return [one for part in value for one in _tensors(part)]
    if isinstance(value, _Float8):
        stored = (
            value._data.cpu().view(torch.float8_e4m3fn).double() * value._scale_inv.cpu().double()
        )
        return [stored]
    return _tensors(value.amax) if isinstance(value, Float8Quantizer) else []


def outcome(
    op: str, dtype: torch.dtype, device: str, function: Any = None, change: float = 0.0
) -> list[torch.Tensor]:
    """The results of a case and its arguments afterwards. ``change`` is added to every number made for it."""
    where = torch.device(device)

    def make(*shape: int, seed: int = 0) -> torch.Tensor:
        return (tensor(*shape, seed=seed) + change).to(dtype).to(where)

    arguments = CASES[op](make, where)
    function = function or reference.OPERATORS[op]
    if callable(arguments):
        return _tensors(arguments(function()))
    return [*_tensors(function(*arguments)), *_tensors(arguments)]


def alike(one: list[torch.Tensor], other: list[torch.Tensor], dtype: torch.dtype) -> bool:
    assert len(one) == len(other) > 0
    return all(agrees(*pair, dtype) for pair in zip(one, other, strict=True))


# A number that is rounded to bfloat16 or FP8 may fall to either side of the middle between two.
ROUNDED = {"multi_tensor_adam_fp8", "multi_tensor_adam_param_remainder"}


@pytest.mark.parametrize("device", ["cpu", "flagos"])
@pytest.mark.parametrize("op", sorted(reference.OPERATORS))
def test_every_operator_in_float32_is_itself_in_float64(op: str, device: str) -> None:
    expected = outcome(op, torch.float64, "cpu")
    tolerance = torch.bfloat16 if op in ROUNDED else torch.float32
    assert alike(outcome(op, torch.float32, device), expected, tolerance)
    # The control: of other numbers the result is another.
    if op not in ("dequantize", "fp8_transpose"):
        assert not alike(outcome(op, torch.float32, device, change=0.5), expected, tolerance)


@pytest.mark.parametrize("op", sorted(reference.OPERATORS))
def test_the_formula_and_the_operator_agree(op: str) -> None:
    ours = outcome(op, torch.float32, "cpu", operators.OPERATORS[op])
    tolerance = torch.bfloat16 if op in ROUNDED else torch.float32
    assert alike(ours, outcome(op, torch.float64, "cpu"), tolerance)


def test_dropout_on_the_device_keeps_what_its_mask_says() -> None:
    x = tensor(5, 7).to("flagos")
    y, mask = reference.OPERATORS["dropout_fwd"](x, 0.25)
    bits = [byte >> i & 1 for byte in mask.tolist() for i in range(8)][: x.numel()]
    kept = torch.tensor(bits).view(5, 7)
    assert 0 < kept.sum() < x.numel()
    assert agrees(y.cpu(), tensor(5, 7).double() * kept / 0.75)


def _parameters(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    parameters = inspect.signature(function).parameters.values()
    return [(one.name, one.kind, one.default) for one in parameters]


def test_every_operator_has_one_with_the_same_arguments() -> None:
    assert sorted(reference.OPERATORS) == sorted(operators.OPERATORS) == sorted(CASES)
    for op, function in operators.OPERATORS.items():
        formula = reference.OPERATORS[op]
        assert formula is not function and _parameters(formula) == _parameters(function), op


def test_preferences_and_selectors_reach_it() -> None:
    manager = OpManager()
    manager.ensure_initialized()
    for op in operators.OPERATORS:
        assert manager.get_selected_impl_id(op) == "default.flagos_rs"
        with with_preference("reference"):
            assert manager.get_selected_impl_id(op) == "reference.torch"
        found = manager.registry.get_implementation(op, "reference.torch")
        assert found is not None and found.kind == BackendImplKind.REFERENCE
        assert found.priority == 50


def test_the_reference_of_another_package_under_the_same_id_stays() -> None:
    manager = OpManager()
    registry = manager.registry
    theirs = OpImpl("gelu", "reference.torch", BackendImplKind.REFERENCE, lambda *_: "theirs")
    registry.register_impl(theirs)
    manager.ensure_initialized()
    assert registry.get_implementation("gelu", "reference.torch") is theirs
    with with_preference("reference"):
        assert manager.call("gelu", tensor(2), None) == "theirs"
        assert isinstance(manager.call("silu", tensor(2), None), torch.Tensor)


SERVED = """
    import torch
    from te_fl import reference
    from te_fl.core import get_manager
    manager = get_manager()
    served = {op: manager.get_selected_impl_id(op) for op in reference.OPERATORS}
    print(sorted(set(served.values())), served["rmsnorm_fwd"])
    manager.call("rmsnorm_fwd", torch.randn(2, 8), torch.ones(8), 1e-5)
"""


def test_the_variables_choose_it_without_transformer_engine_fl() -> None:
    out = run(SERVED, TE_FL_PREFER="reference")
    assert "['reference.torch'] reference.torch" in out
    assert "Op 'rmsnorm_fwd' using 'reference.torch' (kind=reference, vendor=None)" in out
    both = "['default.flagos_rs', 'reference.torch'] reference.torch"
    assert both in run(SERVED, FLAGOS_OP_te__rmsnorm_fwd="reference")
    assert both in run(SERVED, TE_FL_PER_OP="rmsnorm_fwd=impl:reference.torch")
    assert "['default.flagos_rs'] default.flagos_rs" in run(SERVED)


def test_what_has_no_formula_is_declined_by_its_name() -> None:
    x = tensor(3, 3)
    with pytest.raises(UnsupportedError, match=r"comm_overlap.*reference\.torch.*no plain formula"):
        reference.OPERATORS["generic_gemm"](x, False, x, False, *_GEMM, comm_overlap=object())
    with pytest.raises(UnsupportedError, match=r"object is not supported by reference\.torch"):
        reference.OPERATORS["gelu"](x, object())


def test_a_call_that_no_implementation_takes_raises_its_own_error() -> None:
    manager = OpManager()
    with pytest.raises(ValueError, match="gamma must have the shape"):
        manager.call("rmsnorm_fwd", tensor(2, 8), tensor(7), 1e-5)
    with pytest.raises(UnsupportedError, match="object is not supported"):
        manager.call("gelu", tensor(2, 8), object())


def test_it_serves_in_inference_mode() -> None:
    with torch.inference_mode():
        x, dy = tensor(3, 8) * 1, tensor(3, 8, seed=1) * 1
        dx = reference.OPERATORS["dgelu"](dy, x, None)
    assert agrees(dx, outcome("dgelu", torch.float64, "cpu")[0])
