"""Products with weights of integers against formulas in float64, number by number."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vllm_flagos import kernels, operators

pytestmark = pytest.mark.host


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)
    kernels.declare()


def device(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.to("flagos")


def packed(numbers: Tensor, bits: int) -> Tensor:
    """Numbers [rows, n], the first of each 32 / bits in the lowest bits."""
    each = 32 // bits
    rows = []
    for row in numbers.tolist():
        words = [
            sum(number << (bits * place) for place, number in enumerate(row[at : at + each]))
            for at in range(0, len(row), each)
        ]
        rows.append([word - 2**32 if word >= 2**31 else word for word in words])
    return torch.tensor(rows, dtype=torch.int32)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("order", [False, True])
def test_products(bits: int, zeros: bool, order: bool) -> None:
    inputs, outputs, groups = 24, 16, 3
    numbers = torch.randint(0, 2**bits, (inputs, outputs))
    scales, lowest = torch.rand(groups, outputs), torch.randint(0, 2**bits, (groups, outputs))
    group = torch.arange(inputs) // (inputs // groups)
    if order:
        group = group[torch.randperm(inputs)]
    middle = 2 ** (bits - 1)
    x = torch.randn(5, inputs)
    weight = torch.zeros(inputs, outputs, dtype=torch.float64)
    for row in range(inputs):
        for column in range(outputs):
            g = group[row]
            zero = lowest[g, column] if zeros else middle
            weight[row, column] = (numbers[row, column] - zero) * scales[g, column].double()
    made = operators.group_quantized_mm(
        device(x),
        device(packed(numbers, bits)),
        device(scales),
        device(packed(lowest, bits)) if zeros else None,
        device(group.int()) if order else None,
        bits,
        0 if zeros else middle,
    )
    torch.testing.assert_close(made.cpu().double(), x.double() @ weight, rtol=1e-4, atol=1e-3)


def test_numbers_with_a_scale_for_each_row() -> None:
    x = torch.randn(4, 33)
    x[2] = 0
    numbers, scales = (
        torch.empty(4, 33, dtype=torch.int8, device="flagos"),
        torch.empty(4, 1, device="flagos"),
    )
    torch.ops._C.dynamic_scaled_int8_quant(numbers, device(x), scales, None)
    torch.testing.assert_close(scales.cpu()[:, 0], x.abs().amax(1) / 127)
    for row in range(4):
        for column in range(33):
            scale = float(x[row].abs().max()) / 127
            meant = 0.0 if scale == 0 else float(x[row, column]) / scale
            assert abs(float(numbers[row, column]) - meant) <= 0.5001


def test_numbers_with_a_zero_for_each_row() -> None:
    x = torch.randn(4, 33) + 3
    numbers = torch.empty(4, 33, dtype=torch.int8, device="flagos")
    scales, zeros = (
        torch.empty(4, 1, dtype=kind, device="flagos") for kind in (torch.float32, torch.int32)
    )
    torch.ops._C.dynamic_scaled_int8_quant(numbers, device(x), scales, zeros)
    meant = (numbers.cpu().float() - zeros.cpu()) * scales.cpu()
    assert ((meant - x).abs() <= scales.cpu() * 1.001).all()
    assert int(numbers.amin()) == -128 and int(numbers.amax()) >= 126


@pytest.mark.parametrize("zero", [None, -7])
def test_numbers_with_one_scale(zero: int | None) -> None:
    x, scale = torch.randn(3, 20) * 4, 0.03
    numbers = torch.empty(3, 20, dtype=torch.int8, device="flagos")
    given = None if zero is None else torch.tensor([zero], dtype=torch.int32)
    torch.ops._C.static_scaled_int8_quant(
        numbers, device(x), device(torch.tensor([scale])), device(given)
    )
    meant = (x.double() / scale + (zero or 0)).clamp(-128, 127)
    assert (numbers.cpu().double() - meant).abs().max() <= 0.501


@pytest.mark.parametrize("kind", ["symmetric", "a zero for each row", "one zero"])
def test_products_of_numbers(kind: str) -> None:
    a, b = (torch.randint(-128, 128, shape).to(torch.int8) for shape in ((5, 2048), (2048, 12)))
    a_scales, b_scales = torch.rand(5, 1) / 100, torch.rand(12, 1) / 100
    bias, result = torch.randn(12), torch.empty(5, 12, device="flagos")
    zeros = torch.randint(-20, 20, (5, 1)).int()
    if kind == "one zero":
        zeros[:] = 9
    meant = torch.zeros(5, 12, dtype=torch.float64)
    for row in range(5):
        zero = 0 if kind == "symmetric" else int(zeros[row])
        rows = a[row].double() - zero
        meant[row] = (rows @ b.double()) * a_scales[row] * b_scales[:, 0] + bias
    given = (device(a), device(b), device(a_scales), device(b_scales))
    sums = b.sum(0, keepdim=True, dtype=torch.int32)
    if kind == "symmetric":
        torch.ops._C.cutlass_scaled_mm(result, *given, device(bias))
    elif kind == "one zero":
        torch.ops._C.cutlass_scaled_mm_azp(result, *given, device(sums * 9), None, device(bias))
    else:
        torch.ops._C.cutlass_scaled_mm_azp(
            result, *given, device(sums), device(zeros), device(bias)
        )
    torch.testing.assert_close(result.cpu().double(), meant, rtol=1e-5, atol=1e-4)


COUNT, HIDDEN, MIDDLE, GROUP = 3, 16, 8, 4


def weights(out: int, into: int, form: str, zeros: bool) -> tuple[Any, ...]:
    """What the operator takes, and what is meant in float64, expert by expert."""
    if form == "w8a8":
        numbers = torch.randint(-127, 128, (COUNT, out, into)).to(torch.int8)
        scales = torch.rand(COUNT, out, 1) / 100
        return numbers, scales, None, numbers.double() * scales
    bits = 4 if form == "w4a16" else 8
    numbers = torch.randint(0, 2**bits, (COUNT, out, into))
    scales = torch.rand(COUNT, out, into // GROUP) / 10
    lowest = torch.randint(0, 2**bits, (COUNT, out, into // GROUP))
    each = lowest if zeros else torch.full_like(lowest, 2 ** (bits - 1))
    meant = (numbers - each.repeat_interleave(GROUP, 2)) * scales.double().repeat_interleave(
        GROUP, 2
    )
    if bits == 4:  # two numbers a byte, the first below
        numbers = numbers[..., ::2] + 16 * numbers[..., 1::2]
        lowest = lowest[:, ::2] + 16 * lowest[:, 1::2]
    return numbers.to(torch.uint8), scales, lowest.to(torch.uint8) if zeros else None, meant


def nearest(x: Tensor) -> Tensor:
    """X in float64 as int8 has it."""
    scale = x.abs().max() / 127
    return torch.round(x / scale) * scale


@pytest.mark.parametrize(
    ("form", "zeros"),
    [("w4a16", False), ("w4a16", True), ("w8a16", False), ("w8a16", True), ("w8a8", False)],
)
@pytest.mark.parametrize("mapped", [False, True])
def test_experts(form: str, zeros: bool, mapped: bool) -> None:
    x = torch.randn(6, HIDDEN)
    chosen, shares = torch.stack([torch.randperm(4)[:2] for _ in range(6)]), torch.rand(6, 2)
    places = torch.tensor([2, -1, 0, 1]) if mapped else torch.tensor([0, 1, 2, -1])
    w13, scales13, zeros13, meant13 = weights(2 * MIDDLE, HIDDEN, form, zeros)
    w2, scales2, zeros2, meant2 = weights(HIDDEN, MIDDLE, form, zeros)
    given = chosen if mapped else torch.where(chosen == 3, -1, chosen)
    made = operators.quantized_experts(
        *map(device, (x, w13, w2, scales13, scales2, zeros13, zeros2, shares, given.int())),
        "silu",
        form,
        expert_map=device(places.int()) if mapped else None,
    )
    expected = torch.zeros(6, HIDDEN, dtype=torch.float64)
    for row in range(6):
        for which, share in zip(chosen[row], shares[row], strict=True):
            at = int(places[which])
            if at < 0:
                continue
            hidden = x[row].double()
            hidden = meant13[at] @ (nearest(hidden) if form == "w8a8" else hidden)
            hidden = F.silu(hidden[:MIDDLE]) * hidden[MIDDLE:]
            expected[row] += share * (meant2[at] @ (nearest(hidden) if form == "w8a8" else hidden))
    torch.testing.assert_close(made.cpu().double(), expected, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("shared", [False, True])
def test_experts_with_adapters(shared: bool) -> None:
    """Of three tokens' adapters, of which one has none; ``shared``: all experts have a part in common."""
    rank, adapters = 2, torch.tensor([1, -1, 0, 1, 0, -1])
    x = torch.randn(6, HIDDEN)
    chosen, shares = torch.stack([torch.randperm(COUNT)[:2] for _ in range(6)]), torch.rand(6, 2)
    w13, w2 = torch.randn(COUNT, 2 * MIDDLE, HIDDEN), torch.randn(COUNT, HIDDEN, MIDDLE)
    common = 1 if shared else COUNT
    a13 = [torch.randn(2, common, rank, HIDDEN) for _ in range(2)]
    b13 = [torch.randn(2, COUNT, MIDDLE, rank) for _ in range(2)]
    a2, b2 = torch.randn(2, COUNT, rank, MIDDLE), torch.randn(2, common, HIDDEN, rank)
    made = operators.experts_with_adapters(
        *map(device, (x, w13, w2, shares, chosen.int())),
        "silu",
        device(adapters),
        *([device(part) for part in parts] for parts in (a13, b13)),
        *map(device, (a2, b2)),
    )
    expected = torch.zeros(6, HIDDEN, dtype=torch.float64)
    for row, one in enumerate(adapters.tolist()):
        for which, share in zip(chosen[row].tolist(), shares[row], strict=True):
            into, out = w13[which].double(), w2[which].double()
            if one >= 0:
                at = 0 if shared else which
                parts = [
                    b[one, which].double() @ a[one, at].double()
                    for a, b in zip(a13, b13, strict=True)
                ]
                into = into + torch.cat(parts)
                out = out + b2[one, at].double() @ a2[one, which].double()
            hidden = into @ x[row].double()
            expected[row] += share * (out @ (F.silu(hidden[:MIDDLE]) * hidden[MIDDLE:]))
    torch.testing.assert_close(made.cpu().double(), expected, rtol=1e-3, atol=1e-3)


def test_experts_of_another_form() -> None:
    given = [torch.zeros(1, 1, device="flagos")] * 9
    with pytest.raises(Exception, match="does not know weights as 'w2a16'"):
        operators.quantized_experts(*given, "silu", "w2a16")
