"""Compares two results: the verdict on them, and whether they are equal bit for bit."""

from __future__ import annotations

import torch

from torch_fl.flaggems.table_file import BASIC, FAILED, STRICT, UNTESTED
from torch_fl_tools.flaggems import samples

ORDER = (STRICT, BASIC, FAILED)


def worse(one: str, than: str) -> bool:
    """Whether the verdict `one` is worse than `than`; every verdict is worse than UNTESTED."""
    return than == UNTESTED or ORDER.index(one) > ORDER.index(than)


def compare(
    expected: list[torch.Tensor], actual: list[torch.Tensor], random: bool
) -> tuple[str, str]:
    """The verdict on results, and the reason if it is not STRICT."""
    if len(expected) != len(actual):
        return FAILED, f"{len(actual)} results instead of {len(expected)}"
    if _shared(actual) - _shared(expected):
        return FAILED, "a result shares its memory with an argument or with another result"
    worst, why = STRICT, ""
    for one, other in zip(expected, actual, strict=True):
        if one.dtype != other.dtype or one.shape != other.shape:
            return (
                FAILED,
                f"{other.dtype} {tuple(other.shape)} instead of {one.dtype} {tuple(one.shape)}",
            )
        if random:
            worst, why = BASIC, "its random numbers are its own"
            continue
        if one.layout != other.layout:
            return FAILED, f"{other.layout} instead of {one.layout}"
        for a, b in zip(samples.components(one), samples.components(other), strict=True):
            verdict, reason = _compare(a, b)
            if verdict == FAILED:
                return verdict, reason
            if verdict == BASIC and worst == STRICT:
                worst, why = verdict, reason
    return worst, why


def _shared(tensors: list[torch.Tensor]) -> set[tuple[int, int]]:
    """The pairs of tensors that share memory."""
    memory = [
        t.untyped_storage().data_ptr() if t.layout == torch.strided and t.numel() else 0
        for t in tensors
    ]
    return {
        (i, j) for i, one in enumerate(memory) for j in range(i) if one != 0 and one == memory[j]
    }


def _compare(one: torch.Tensor, other: torch.Tensor) -> tuple[str, str]:
    """The verdict on values and strides."""
    a, b = one.detach().cpu(), other.detach().cpu()
    try:
        torch.testing.assert_close(b, a, equal_nan=True)
    except AssertionError as error:
        reason = " ".join(str(error).split())[:160]
        rtol, atol = (10 * x for x in torch.testing._comparison.default_tolerances(a))
        try:
            torch.testing.assert_close(b, a, equal_nan=True, rtol=rtol, atol=atol)
        except AssertionError:
            return FAILED, reason
        return BASIC, reason
    if strides(one) != strides(other):
        return BASIC, f"strides {other.stride()} instead of {one.stride()}"
    return STRICT, ""


def strides(tensor: torch.Tensor) -> list[int]:
    """The strides that say where an element is."""
    if tensor.numel() == 0:
        return []
    return [s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1]


def same_bits(some: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether all tensors have the same bits and strides; for sparse tensors, all their parts."""

    def bits(tensor: torch.Tensor) -> torch.Tensor:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        # A tensor of one element is contiguous whatever its strides are.
        return plain.reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.uint8)

    some, others = ([c for t in every for c in samples.components(t)] for every in (some, others))
    return len(some) == len(others) and all(
        one.stride() == other.stride() and torch.equal(bits(one), bits(other))
        for one, other in zip(some, others, strict=True)
    )
