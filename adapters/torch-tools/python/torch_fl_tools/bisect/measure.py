"""Two results compared: by how much they differ, in numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

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
) -> dict[str, Any]:
    """The difference of two tensors on the CPU, and whether it is beyond the tolerances (`differs`).

    NaN in the same place is equal. `max_abs` is over places where both are finite, `max_rel` over
    those of them where zero is not expected. `excess` is the
    largest difference, in units of what is tolerated: above 1 it `differs`. The result of a kernel is judged by
    its own scale: small elements of a sum of large numbers differ by as much as its large elements do.
    """
    told: dict[str, Any] = {
        "shape": list(actual.shape),
        "dtype": str(actual.dtype).removeprefix("torch."),
        "differs": False,
        "excess": 0.0,
    }
    if expected.shape != actual.shape or expected.dtype != actual.dtype:
        was = f"{str(expected.dtype).removeprefix('torch.')}{list(expected.shape)}"
        return {
            **told,
            "differs": True,
            "excess": float("inf"),
            "reason": f"{told['dtype']}{told['shape']} instead of {was}",
        }
    used_rtol, used_atol = tolerances(expected.dtype)
    if rtol is not None or atol is not None:
        used_rtol, used_atol = rtol or 0.0, atol or 0.0
    wide = torch.complex128 if expected.dtype.is_complex else torch.float64
    whole = not (expected.dtype.is_floating_point or expected.dtype.is_complex)
    a, b = expected.to(wide), actual.to(wide)
    nan_a, nan_b = torch.isnan(a), torch.isnan(b)
    finite = torch.isfinite(a) & torch.isfinite(b)
    gap = torch.where(finite, (a - b).abs(), torch.zeros((), dtype=torch.float64))
    scale = torch.where(finite, a.abs(), torch.zeros((), dtype=torch.float64))
    if of_a_kernel and bool(finite.any()):
        rms = scale.square().sum().div(finite.sum()).sqrt()
        scale = torch.maximum(scale, rms)
    limit = used_atol + used_rtol * scale
    # Integers are compared as they are: float64 would round differences of large ones away.
    alike = expected == actual if whole else (a == b) | (nan_a & nan_b)
    beyond = ~alike & (~finite | (gap > limit) | whole)
    known = finite & (a != 0)
    worst = int(gap.argmax()) if gap.numel() else 0
    of_limit = torch.where(gap > 0, gap / limit, torch.zeros((), dtype=torch.float64))
    excess = float(of_limit.max()) if gap.numel() else 0.0
    endless = bool((beyond & (~finite | whole)).any())
    told |= {
        "elements": actual.numel(),
        "beyond": int(beyond.sum()),
        "max_abs": float(gap.max()) if gap.numel() else 0.0,
        "max_rel": float((gap[known] / a.abs()[known]).max()) if bool(known.any()) else 0.0,
        "at": [int(i) for i in torch.unravel_index(torch.tensor(worst), gap.shape)]
        if gap.numel()
        else [],
        "nan_expected": int(nan_a.sum()),
        "nan": int(nan_b.sum()),
        "rtol": used_rtol,
        "atol": used_atol,
        "excess": float("inf") if endless else excess,
        "differs": bool(beyond.any()),
    }
    told["reason"] = words(told) if told["differs"] else ""
    return told


def words(told: dict[str, Any]) -> str:
    """A difference in one line."""
    if told["nan"] != told["nan_expected"]:
        return f"{told['nan']} of {told['elements']} are NaN, and {told['nan_expected']} expected"
    return (
        f"max |Δ| {told['max_abs']:.6g} at {told['at']}, relative {told['max_rel']:.3g}; "
        f"{told['beyond']} of {told['elements']} beyond rtol {told['rtol']:.3g}, atol {told['atol']:.3g}"
    )
