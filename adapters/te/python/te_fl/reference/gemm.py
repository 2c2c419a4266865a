"""Matrix products in cuBLAS' view of row-major tensors: D = op(B)·op(A), with epilogues.

A and B are matrices; dimensions before the last are rows. ``transA`` and ``transB`` transpose them. The product
is accumulated and its epilogue computed in float32 (float64 for float64), and rounded once.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from flagos._core import UnsupportedError
from te_fl.operators.arguments import assign, compute_dtype, torch_dtype
from te_fl.operators.quantization import is_quantized
from te_fl.reference.activation import gelu as gelu_of
from te_fl.reference.precision import gradients
from te_fl.reference.quantization import check, deliver, values


def _matrix(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(prod(x.shape[:-1]), x.shape[-1])


def _shape(a: torch.Tensor, trans_a: bool, b: torch.Tensor, trans_b: bool) -> list[int]:
    """The shape of D: the leading dimensions of B are kept unless it is transposed."""
    rows = [b.shape[-1]] if trans_b else list(b.shape[:-1])
    return [*rows, _matrix(a).shape[0] if trans_a else a.shape[-1]]


def generic_gemm(
    A: Any,
    transA: bool,
    B: Any,
    transB: bool,
    D: Any,
    quantizer: Any,
    output_dtype: Any,
    bias: torch.Tensor | None,
    bias_type: Any,
    gelu: bool,
    gelu_in: torch.Tensor | None,
    grad: bool,
    workspace: Any,
    workspace_size: int,
    accumulate: bool,
    use_split_accumulator: bool,
    comm_overlap: Any = None,
    comm_type: Any = None,
    extra_output: Any = None,
    bulk_overlap: bool = False,
    alpha: float = 1.0,
    beta: float | None = None,
) -> list[Any]:
    """[D, gradient of the bias or None, input of GELU or None, ``extra_output``].

    Forward: D = GELU(α·op(B)·op(A) + ``bias``), each part as asked. With ``grad``: D = α·op(B)·op(A), times the
    derivative of GELU at ``gelu_in`` with ``gelu``; a ``bias`` asks for its gradient, the sum over the rows of
    D with ``gelu``, else of B. ``accumulate`` adds β·D (β = 1 if not given).
    """
    check(quantizer)
    if comm_overlap is not None:
        raise UnsupportedError(
            "generic_gemm with comm_overlap is not supported by reference.torch: a communication object "
            "has no plain formula"
        )
    if beta and not accumulate:
        raise ValueError(f"beta={beta} has nothing to multiply: accumulate is not set")
    if accumulate and D is None:
        raise ValueError("accumulate needs the tensor D to add to")
    if grad and gelu and gelu_in is None:
        raise ValueError("the gradient of GELU needs gelu_in")
    if accumulate and (quantizer is not None or is_quantized(D)):
        raise UnsupportedError("accumulating in FP8 is not supported by reference.torch")
    a, b = values(A), values(B)
    shape = _shape(a, transA, b, transB)
    if D is not None and not is_quantized(D) and D.numel() != prod(shape):
        raise ValueError(f"D must have the shape {tuple(shape)}, got {tuple(D.shape)}")
    quantized = is_quantized(A) or is_quantized(B)
    dtype = torch_dtype(output_dtype) or (torch.bfloat16 if quantized else a.dtype)
    wide = compute_dtype(a, b)
    left, right = _matrix(b).to(wide), _matrix(a).to(wide)
    product = alpha * ((left.mT if transB else left) @ (right.mT if transA else right))
    bias_grad = pre_gelu = None
    if grad:
        if gelu:
            assert gelu_in is not None
            (product,) = gradients(gelu_of, [gelu_in.reshape(product.shape).to(wide)], product)
        if bias is not None:
            bias_grad = (product if gelu else left).sum(0).to(dtype)
    else:
        if bias is not None:
            product = product + bias.to(wide)
        if gelu:
            pre_gelu = deliver(product.reshape(shape), dtype, gelu_in)
            product = gelu_of(product)
    product = product.reshape(shape)
    if accumulate:
        addend = D.detach().to(wide).reshape(shape)
        product = product + (1.0 if beta is None else beta) * addend
    # Into a tensor that is given, the unrounded sum is rounded to its dtype.
    to = D.dtype if D is not None and not is_quantized(D) and quantizer is None else dtype
    return [deliver(product, to, D, quantizer), bias_grad, pre_gelu, extra_output]


def te_general_grouped_gemm(
    A: list[Any],
    transa: bool,
    B: list[Any],
    transb: bool,
    D: list[torch.Tensor] | None,
    D_type: Any,
    m_splits: list[int],
    bias: list[torch.Tensor],
    bias_type: Any,
    single_output: bool,
    pre_gelu_out: list[torch.Tensor],
    grad: bool,
    workspace: Any,
    workspaceSizes: int,
    accumulate: bool,
    use_split_accumulator: bool,
    math_sm_count: int = 0,
) -> list[torch.Tensor]:
    """:func:`generic_gemm` of each pair, written into ``D``. Returns ``bias``, or the new ``D`` where ``D`` is None.

    With ``single_output`` the results are the rows of ``D[0]``, one after another. An empty bias or input of
    GELU means none. With ``grad`` the tensors of ``bias`` receive the gradients.
    """
    if single_output and D is None:
        raise ValueError("single_output needs the tensor to write to")
    shapes = [_shape(values(a), transa, values(b), transb) for a, b in zip(A, B, strict=True)]
    if D is None:
        dtype = torch_dtype(D_type)
        results = [
            values(a).new_zeros(shape, dtype=dtype) for a, shape in zip(A, shapes, strict=True)
        ]
    elif single_output:
        rows = [prod(shape[:-1]) for shape in shapes]
        results = list(_matrix(D[0])[: sum(rows)].split(rows))
    else:
        results = list(D)
    for a, b, result, c, g in zip(A, B, results, bias, pre_gelu_out, strict=True):
        of_bias = c if c.numel() else None
        of_gelu = g if g.numel() else None
        _, bias_grad, *_ = generic_gemm(
            a, transa, b, transb, result, None, result.dtype, of_bias, bias_type,
            of_gelu is not None, of_gelu, grad, None, 0, accumulate, use_split_accumulator,
        )  # fmt: skip
        if bias_grad is not None:
            assign(c, bias_grad.to(c.dtype))
    return results if D is None else bias
