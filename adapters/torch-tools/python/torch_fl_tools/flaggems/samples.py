"""Samples of torch's operator database as cases need them: on flagos, varied, and some of our own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_fl.calls import Args, Kwargs
from torch_fl_tools.comparing.transfer import Transfer


def variations(
    op: Any, dtype: torch.dtype, sample: Any, number: int, grad: bool
) -> Iterator[tuple[str, Any]]:
    """Yields the named variations of the `number`th sample of an entry in a type."""
    yield "not contiguous", sample.noncontiguous()  # then gradients are not, either
    if dtype.is_floating_point:
        yield "with NaN and infinities", _with_special_values(sample)
    if dtype == torch.int64 and not grad and _computes(op):
        yield "with large integers", _with_large_integers(sample, 53 if number % 2 else 24)
    if dtype == torch.float32 and not (grad or _two_operands(op)):
        for other in (torch.float16, torch.int64):
            if (mixed := _of_two_types(sample, other)) is not None:
                yield f"of two types, {type_name(other)} first", mixed


def of_our_own(
    op: Any, dtype: torch.dtype, some: Any | None, grad: bool
) -> Iterator[tuple[str, Any]]:
    """Samples that the database does not have of an entry, named; `some` is one that it has, if it has any."""
    if _two_operands(op) and not grad:
        yield "a matrix with its own transpose", _with_its_transpose(op, dtype)
        yield "a column with a row", _column_with_row(op, dtype)
        other = torch.int64 if dtype == torch.float32 else torch.float32
        for shape in ((8, 8), ()):
            label = f"of two types, {type_name(other)} of {len(shape)} dimensions"
            yield label, _matrix_with(op, dtype, shape, other)
    if some is not None and (numbers := _other_numbers(op, dtype)):
        yield "with other numbers", _replaced(some, kwargs={**some.kwargs, **numbers})
    if some is not None and isinstance(some.input, (list, tuple)):
        yield "the first tensor alone", _replaced(some, input=[*some.input][:1])
    for transposed in (False, True) if op.full_name in PRODUCTS else ():
        label = "sizes of 16, transposed" if transposed else "sizes of 16"
        product = _product(op.full_name, dtype, grad, transposed)
        yield label, product
        if dtype.is_floating_point and not (grad or transposed):
            yield f"{label}, with NaN and infinities", _with_special_values(product)


def type_name(dtype: torch.dtype) -> str:
    """As names of cases have it."""
    return str(dtype).removeprefix("torch.")


def tensors(value: Any) -> list[torch.Tensor]:
    """The tensors in a nest of lists, tuples and dictionaries."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def components(tensor: torch.Tensor) -> list[torch.Tensor]:
    """The dense tensors that a sparse one is made of; one that is dense, itself."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]
    return [tensor]


def on_flagos(sample: Any) -> Any:
    """The sample on flagos: memory of its own, with the same offsets and strides, shared where it is shared.

    A device among its arguments is flagos as well.
    """
    input, args, kwargs = Transfer(torch.device("flagos")).tree(parts(sample))
    return _sample(input, args, kwargs)


def parts(sample: Any) -> tuple[Any, ...]:
    """All that an operator is given of a sample."""
    return sample.input, sample.args, sample.kwargs


def _replaced(sample: Any, **others: Any) -> Any:
    """The sample with another `input`, `args` or `kwargs`."""
    fields = {"input": sample.input, "args": sample.args, "kwargs": sample.kwargs}
    return _sample(**{**fields, **others})


def _sample(input: Any, args: Args = (), kwargs: Kwargs | None = None) -> Any:
    # Imported late: what is in its package takes seconds.
    from torch.testing._internal.opinfo.core import SampleInput

    return SampleInput(input, args=args, kwargs=kwargs or {})


def _two_operands(op: Any) -> bool:
    """Whether it takes two, element by element."""
    return hasattr(op, "lhs_make_tensor_kwargs")


def _with_special_values(sample: Any) -> Any:
    """Among the numbers of each tensor, in other places of each and in other rows: they meet ordinary ones, too."""
    special = torch.tensor([float("nan"), float("inf"), float("-inf")])
    turn = count()

    def planted(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point or x.numel() < 4:
            return x
        flat = x.detach().clone().reshape(-1)
        first, apart = next(turn), x.numel() // len(special)
        flat[(first + apart * torch.arange(len(special))) % x.numel()] = special.to(x.dtype)
        return flat.view(x.shape).requires_grad_(x.requires_grad)

    return sample.transform(planted)


# Those whose integers are numbers to compute with, beside the ones of one or two operands and reductions.
_NUMERIC = frozenset(["addcdiv", "addcmul", "clamp", "dot", "isin", "sort", "vdot", "where"])


def _computes(op: Any) -> bool:
    from torch.testing._internal.opinfo import core

    if "shift" in op.name or "polynomial" in op.name:  # by so many places, of such a degree
        return False
    kinds = (core.UnaryUfuncInfo, core.BinaryUfuncInfo, core.ReductionOpInfo)
    return isinstance(op, kinds) or op.name in _NUMERIC


def _with_large_integers(sample: Any, bits: int) -> Any:
    """Neighbours that are one number in a floating-point type of fewer bits."""

    def moved(x: Any) -> Any:
        large = isinstance(x, torch.Tensor) and x.dtype == torch.int64
        return x + 2**bits if large else x

    return sample.transform(moved)


def _of_two_types(sample: Any, dtype: torch.dtype) -> Any | None:
    """The first tensor in another type than the others; None where there are no others of its type."""
    x = sample.input
    others = tensors((sample.args, sample.kwargs))
    if not isinstance(x, torch.Tensor) or all(x.dtype != other.dtype for other in others):
        return None
    return _replaced(sample, input=x.to(dtype))


def _other_numbers(op: Any, dtype: torch.dtype) -> dict[str, Any]:
    """Keywords that samples of the database leave at their defaults."""
    given = getattr(op, "sample_kwargs", None)
    return dict(given("cpu", dtype, torch.ones(1, dtype=dtype))[0]) if given is not None else {}


# Samples of the database are small, and of sizes for which kernels take another way than for those of models.
PRODUCTS: dict[str, list[tuple[int, ...]]] = {
    "mm": [(80, 144), (144, 48)],
    "bmm": [(3, 80, 144), (3, 144, 48)],
    "addmm": [(80, 48), (80, 144), (144, 48)],
    "baddbmm": [(3, 80, 48), (3, 80, 144), (3, 144, 48)],
}


def _product(entry: str, dtype: torch.dtype, grad: bool, transposed: bool) -> Any:
    """Matrices whose sizes are multiples of 16, row by row in memory, or column by column.

    Their numbers are positive: sums lose no digits.
    """
    from torch.testing import make_tensor

    low, high = (0.5, 1) if dtype.is_floating_point else (0, 9)

    def matrix(*batch: int, rows: int, columns: int) -> torch.Tensor:
        shape = (*batch, columns, rows) if transposed else (*batch, rows, columns)
        made = make_tensor(shape, dtype=dtype, device="cpu", low=low, high=high)
        return (made.mT if transposed else made).requires_grad_(grad)

    first, *others = (
        matrix(*batch, rows=rows, columns=columns) for *batch, rows, columns in PRODUCTS[entry]
    )
    return _sample(first, args=tuple(others))


def _column_with_row(op: Any, dtype: torch.dtype) -> Any:
    """Both are broadcast, and both are contiguous: whoever reads no strides is found by it."""
    from torch.testing import make_tensor

    x = make_tensor((64, 1), dtype=dtype, device="cpu", **op.lhs_make_tensor_kwargs)
    y = make_tensor((1, 48), dtype=dtype, device="cpu", **op.rhs_make_tensor_kwargs)
    return _sample(x, args=(y,))


def _matrix_with(op: Any, dtype: torch.dtype, shape: tuple[int, ...], other: torch.dtype) -> Any:
    from torch.testing import make_tensor

    x = make_tensor((8, 8), dtype=dtype, device="cpu", **op.lhs_make_tensor_kwargs)
    y = make_tensor(shape, dtype=other, device="cpu", **op.rhs_make_tensor_kwargs)
    return _sample(x, args=(y,))


def _with_its_transpose(op: Any, dtype: torch.dtype) -> Any:
    """A matrix and its transpose, in the same memory: what is chosen by strides must tell them apart."""
    from torch.testing import make_tensor

    x = make_tensor((64, 64), dtype=dtype, device="cpu", **op.lhs_make_tensor_kwargs)
    return _sample(x, args=(x.t(),))
