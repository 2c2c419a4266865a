"""Two results compared: by how much they differ, in numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_fl_tools.bisect.findings import Difference

FACTOR = 10
"""How many times torch's own tolerances (`torch.testing`) a value may differ by: kernels may round otherwise."""


def flat(value: Any) -> list[torch.Tensor]:
    """The tensors and numbers of a nest, in order, as tensors on the CPU that share no memory with it."""
    found = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor):
            found.append(_plain(leaf.detach()))
        elif isinstance(leaf, (bool, int, float, complex)):
            found.append(torch.tensor(leaf))
    return found


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    there = tensor.to("cpu", copy=True)
    return there.resolve_conj().resolve_neg()


def tolerances(dtype: torch.dtype) -> tuple[float, float]:
    """(rtol, atol) for values of this dtype: zero for integers and booleans."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return 0.0, 0.0
    # Of float8 torch has none; its numbers have 3 bits or fewer behind the point.
    of = dtype if dtype.itemsize > 1 else torch.float16
    rtol, atol = torch.testing._comparison.default_tolerances(of)
    return (0.25, atol) if dtype.itemsize == 1 else (FACTOR * rtol, FACTOR * atol)


def difference(
    expected: torch.Tensor,
    actual: torch.Tensor,
    rtol: float | None = None,
    atol: float | None = None,
    of_a_kernel: bool = False,
) -> Difference:
    """The difference of two tensors on the CPU, and whether it is beyond the tolerances (`differs`).

    NaN in the same place is equal. `max_abs` is over places where both are finite, `max_rel` over
    those of them where zero is not expected. `excess` is the
    largest difference, in units of what is tolerated: above 1 it `differs`. The result of a kernel is judged by
    its own scale: small elements of a sum of large numbers differ by as much as its large elements do.
    """
    shape, dtype = list(actual.shape), _name(actual.dtype)
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        was = f"{_name(expected.dtype)}{list(expected.shape)}"
        reason = f"{dtype}{shape} instead of {was}"
        return Difference(True, float("inf"), reason, shape=shape, dtype=dtype)
    used_rtol, used_atol = tolerances(expected.dtype)
    if rtol is not None or atol is not None:
        used_rtol, used_atol = rtol or 0.0, atol or 0.0
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    whole = not (expected.dtype.is_floating_point or expected.dtype.is_complex)
    a, b = expected.to(wide), actual.to(wide)
    nan_a, nan_b = torch.isnan(a), torch.isnan(b)
    finite = torch.isfinite(a) & torch.isfinite(b)
    gap = torch.where(finite, (a - b).abs(), torch.zeros((), dtype=torch.float64))
    limit = used_atol + used_rtol * _scale(a, finite, of_a_kernel)
    # Integers are compared as they are: float64 would round differences of large ones away.
    alike = expected == actual if whole else (a == b) | (nan_a & nan_b)
    beyond = ~alike & (~finite | (gap > limit) | whole)
    known = finite & (a != 0)
    endless = bool((beyond & (~finite | whole)).any())
    of_limit = torch.where(gap > 0, gap / limit, torch.zeros((), dtype=torch.float64))
    found = Difference(
        differs=bool(beyond.any()),
        excess=float("inf") if endless else _most(of_limit),
        reason="",
        shape=shape,
        dtype=dtype,
        elements=actual.numel(),
        beyond=int(beyond.sum()),
        max_abs=_most(gap),
        max_rel=_most(gap[known] / a.abs()[known]),
        at=_place_of_most(gap),
        nan_expected=int(nan_a.sum()),
        nan=int(nan_b.sum()),
        rtol=used_rtol,
        atol=used_atol,
    )
    return replace(found, reason=words(found)) if found.differs else found


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _scale(expected: torch.Tensor, finite: torch.Tensor, of_a_kernel: bool) -> torch.Tensor:
    """The base of relative tolerances: each element, or at least the root mean square of all elements."""
    scale = torch.where(finite, expected.abs(), torch.zeros((), dtype=torch.float64))
    if of_a_kernel and bool(finite.any()):
        rms = scale.square().sum().div(finite.sum()).sqrt()
        scale = torch.maximum(scale, rms)
    return scale


def _most(values: torch.Tensor) -> float:
    return float(values.max()) if values.numel() else 0.0


def _place_of_most(values: torch.Tensor) -> list[int]:
    if not values.numel():
        return []
    return [int(i) for i in torch.unravel_index(values.argmax(), values.shape)]


def words(found: Difference) -> str:
    """A difference in one line."""
    if found.nan != found.nan_expected:
        return f"{found.nan} of {found.elements} are NaN, and {found.nan_expected} expected"
    return (
        f"max |Δ| {found.max_abs:.6g} at {found.at}, relative {found.max_rel:.3g}; "
        f"{found.beyond} of {found.elements} beyond rtol {found.rtol:.3g}, atol {found.atol:.3g}"
    )
