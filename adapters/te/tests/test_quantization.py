"""FP8 with one scale per tensor, dropout, permutations: against definitions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from adapters.te.tests.oracle import DTYPES, agrees, tensor, wide
from te_fl.core import UnsupportedError
from te_fl.operators import dropout, gemm, normalization, permutation
from te_fl.operators import quantization as q

# Once for each implementation: the operators, and their plain formulas.
pytestmark = pytest.mark.usefixtures("implementation")


class Float8Tensor:
    """The attributes of TransformerEngine's."""

    def __init__(self, shape: tuple[int, ...], dtype: int, transpose: bool = False) -> None:
        self._data: Any = torch.zeros(shape, dtype=torch.uint8)
        self._transpose: Any = (
            torch.zeros(shape[-1], *shape[:-1], dtype=torch.uint8) if transpose else None
        )
        self._scale_inv = torch.zeros(1)
        self._fp8_dtype = dtype
        self.shape = shape


class Float8Quantizer:
    def __init__(self, dtype: int = 7, scale: float = 4.0, transpose: bool = False) -> None:
        self.dtype, self.transpose = dtype, transpose
        self.scale, self.amax = torch.full((1,), scale), torch.zeros(1)

    def make_empty(self, shape: tuple[int, ...], **_: Any) -> Float8Tensor:
        return Float8Tensor(shape, self.dtype, self.transpose)


class Float8CurrentScalingQuantizer(Float8Quantizer):
    force_pow_2_scales = False
    amax_epsilon = 0.0


LARGEST = {7: 448.0, 8: 57344.0}
STEP = {7: 2**-4, 8: 2**-3}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("fp8", [7, 8])
def test_delayed_scaling(fp8: int, dtype: torch.dtype) -> None:
    x, quantizer = tensor(4, 6, dtype=dtype), Float8Quantizer(fp8, transpose=True)
    out = q.quantize(x, quantizer)
    assert out._scale_inv.item() == 0.25 and quantizer.amax.item() == x.abs().max().item()
    back = q.dequantize(out, 4)
    assert ((back.double() - wide(x)).abs() <= wide(x).abs() * STEP[fp8] + 1e-3).all()
    assert torch.equal(out._transpose, out._data.T)
    assert torch.equal(q.fp8_transpose(out._data, fp8), out._transpose)
    # A value stored only as its transpose is the same.
    out._data = None
    assert torch.equal(q.dequantize(out, torch.float32), back)


def test_values_beyond_the_format_saturate() -> None:
    out = q.quantize(torch.tensor([1e6, -1e6, 0.0]), Float8Quantizer(7, 1.0))
    assert q.dequantize(out, 4).tolist() == [448.0, -448.0, 0.0]


@pytest.mark.parametrize("power_of_2", [False, True])
def test_current_scaling_uses_the_whole_range(power_of_2: bool) -> None:
    x, quantizer = 10 * tensor(4, 6), Float8CurrentScalingQuantizer()
    quantizer.force_pow_2_scales = power_of_2
    out = q.quantize(x, quantizer)
    scale = 448.0 / x.abs().max().item()
    scale = 2.0 ** torch.tensor(scale).log2().floor().item() if power_of_2 else scale
    assert out._scale_inv.item() == pytest.approx(1 / scale, rel=1e-6)
    assert ((q.dequantize(out, 4).double() - wide(x)).abs() <= wide(x).abs() * 2**-4 + 0.01).all()


def test_a_flag_on_the_device_keeps_what_was_there() -> None:
    x, quantizer = tensor(2, 3), Float8Quantizer()
    out = q.quantize(x, quantizer)
    kept = (out._data.clone(), quantizer.amax.clone())
    q.quantize(5 * x, quantizer, out, torch.ones(1))
    assert torch.equal(out._data, kept[0]) and torch.equal(quantizer.amax, kept[1])
    q.quantize(5 * x, quantizer, out, torch.zeros(1))
    assert not torch.equal(out._data, kept[0]) and not torch.equal(quantizer.amax, kept[1])


def test_without_a_quantizer_it_is_a_copy() -> None:
    x, out = tensor(2, 3), torch.empty(2, 3, dtype=torch.float16)
    assert q.quantize(x, None) is x and q.quantize(x, None, out) is out
    assert torch.equal(out, x.half())


def test_other_recipes_are_declined_before_anything_is_computed() -> None:
    class NVFP4Quantizer:
        pass

    for call in (
        lambda: q.quantize(tensor(2, 2), NVFP4Quantizer()),
        lambda: normalization.rmsnorm_fwd(tensor(2, 2), tensor(2), 1e-5, None, NVFP4Quantizer()),
        lambda: q.multi_tensor_quantize([tensor(2)], [NVFP4Quantizer()]),
    ):
        with pytest.raises(UnsupportedError, match="NVFP4Quantizer is not supported"):
            call()


def test_scales_from_amaxes() -> None:
    amax = torch.tensor([2.0, 0.0, torch.inf, torch.nan, 1e-40])
    expected = [224.0, 1.0, 1.0, 1.0, torch.finfo(torch.float32).max]
    assert q.scale_from_amax(amax, 448.0, False, 0.0).tolist() == expected
    scale, inverse = torch.zeros(5), torch.zeros(5)
    flag = torch.zeros(1, dtype=torch.int32)
    q.multi_tensor_compute_scale_and_scale_inv(
        1, flag, [[amax], [scale], [inverse]], 448.0, True, 0.5
    )
    assert scale[:2].tolist() == [128.0, 512.0] and inverse[0].item() == 1 / 128
    q.multi_tensor_compute_scale_and_scale_inv(1, flag + 1, [[amax], [scale], [inverse]], 1.0)
    assert scale[0].item() == 128.0


def test_the_gradient_of_a_bias_splits_and_amax() -> None:
    x = tensor(2, 3, 4)
    bias, same = q.bgrad_quantize(x, None)
    assert agrees(bias, wide(x).sum((0, 1))) and same is x
    parts = q.split_quantize(tensor(5, 3), [2, 3], [None, None])
    assert [part.shape[0] for part in parts] == [2, 3]
    amax = torch.zeros(1)
    q.compute_amax(x, amax)
    assert amax.item() == x.abs().max().item()
    assert torch.equal(q.swap_first_dims(x), x.transpose(0, 1))


def test_products_of_quantized_matrices() -> None:
    a, b = (
        q.quantize(tensor(7, 5), Float8Quantizer()),
        q.quantize(tensor(3, 5, seed=1), Float8Quantizer()),
    )
    rest = (None, None, 4, None, None, False, None, False, torch.empty(0), 0, False, False)
    out = gemm.generic_gemm(a, True, b, False, *rest)[0]
    assert agrees(out, wide(q.dequantize(b, 4)) @ wide(q.dequantize(a, 4)).T)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(4, 8), (3, 5, 7), (0, 3)])
def test_dropout_keeps_its_share_and_goes_back_by_its_mask(
    shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    x = torch.ones(shape, dtype=dtype)
    y, mask = dropout.dropout_fwd(x, 0.25)
    assert y.dtype == dtype and mask.dtype == torch.uint8 and mask.numel() == (x.numel() + 7) // 8
    kept = y != 0
    assert agrees(y, kept.double() / 0.75)
    # The lowest bit of the first byte is the first element.
    bits = [int(byte) >> i & 1 for byte in mask for i in range(8)][: x.numel()]
    assert bits == kept.flatten().int().tolist()
    dy = tensor(*shape, dtype=dtype, seed=1)
    expected = wide(dy) * kept / 0.75
    assert agrees(dropout.dropout_bwd(dy, mask, 0.25), expected)
    if x.numel() > 1:
        assert agrees(dropout.dropout_bwd(dy, kept.to(torch.uint8), 0.25), expected)


def test_dropout_of_nothing_everything_and_of_infinity() -> None:
    x = tensor(64, 64)
    assert torch.equal(dropout.dropout_fwd(x, 0.0)[0], x)
    assert not dropout.dropout_fwd(x, 1.0)[0].any()
    y, _ = dropout.dropout_fwd(torch.full((1000,), torch.inf), 0.5)
    share = (y == 0).double().mean().item()
    assert 0.4 < share < 0.6 and not y.isnan().any()
    with pytest.raises(ValueError, match="within 0 and 1"):
        dropout.dropout_fwd(x, 1.5)
    out = torch.empty_like(x)
    assert dropout.dropout_fwd(x, 0.5, out)[0] is out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("tokens", "top_k", "limit"), [(6, 2, 0), (6, 2, 9), (1, 1, 0), (5, 3, 4)])
def test_permutation(tokens: int, top_k: int, limit: int, dtype: torch.dtype) -> None:
    x = tensor(tokens, 4, dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    experts = torch.stack(
        [torch.randperm(4, generator=generator)[:top_k] for _ in range(tokens)]
    ).int()
    rows, row_map, workspace = permutation.moe_permute_fwd(x, None, experts, limit, [], 99)
    assert workspace == [] and row_map.dtype == torch.int32
    # By the definition: choices in the order of their expert, earlier tokens first.
    choices = sorted(
        ((int(experts[t, k]), t, k) for t in range(tokens) for k in range(top_k)),
        key=lambda c: c[:1],
    )
    kept = choices[: limit or None]
    assert torch.equal(rows, x[[t for _, t, _ in kept]])
    place = {(t, k): i for i, (_, t, k) in enumerate(kept)}
    for t in range(tokens):
        for k in range(top_k):
            assert row_map[k * tokens + t] == place.get((t, k), -1)
    prob = tensor(tokens, top_k, seed=5)
    wrows, wprob = wide(rows, True), wide(prob, True)
    weights = torch.zeros(tokens, len(kept), dtype=torch.float64)
    for i, (_, t, k) in enumerate(kept):
        weights = weights + torch.zeros_like(weights).index_put(
            (torch.tensor(t), torch.tensor(i)), wprob[t, k]
        )
    back = weights @ wrows
    got = permutation.moe_unpermute_fwd(rows, None, row_map, prob, tokens, top_k)
    assert agrees(got, back)
    unweighted = (weights.detach() != 0).double() @ wrows.detach()
    none = torch.empty(0)
    assert agrees(
        permutation.moe_unpermute_fwd(rows, None, row_map, none, tokens, top_k), unweighted
    )
    assert agrees(permutation.moe_permute_bwd(rows, None, row_map, none, tokens, top_k), unweighted)
    dy = tensor(tokens, 4, dtype=dtype, seed=6)
    drows, dprob = torch.autograd.grad(back, (wrows, wprob), wide(dy))
    act_grad, prob_grad = permutation.moe_unpermute_bwd(dy, rows, None, row_map, prob)
    assert agrees(act_grad, drows) and agrees(prob_grad, dprob, dtype)
    assert not agrees(
        permutation.moe_unpermute_fwd(rows, None, row_map, prob + 1, tokens, top_k), back
    )
