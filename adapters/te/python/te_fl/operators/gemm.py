"""Matrix products in cuBLAS' view of row-major tensors: D = op(B) · op(A).

``transA`` and ``transB`` transpose the stored matrices; dimensions before the last are rows. Epilogues:
a bias, GELU (tanh) with its input returned, the gradient of GELU, and the gradient of a bias.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from flagos._core import UnsupportedError
from te_fl.operators.arguments import assign, has_kernel, torch_dtype
from te_fl.operators.quantization import check, is_quantized, plain, quantize

_aten = torch.ops.aten


def _matrix(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dim() == 2 else tensor.reshape(-1, tensor.shape[-1])


def _output_shape(a: torch.Tensor, trans_a: bool, b: torch.Tensor, trans_b: bool) -> list[int]:
    """The shape of D: the leading dimensions of B where it is not transposed."""
    rows = [b.shape[-1]] if trans_b else list(b.shape[:-1])
    columns = [_matrix(a).shape[0]] if trans_a else [a.shape[-1]]
    return rows + columns


def _sides(
    a: torch.Tensor, trans_a: bool, b: torch.Tensor, trans_b: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """The left and the right matrix of the product."""
    left, right = _matrix(b), _matrix(a)
    return left.mT if trans_b else left, right.mT if trans_a else right


def _product(
    a: torch.Tensor, trans_a: bool, b: torch.Tensor, trans_b: bool, bias: torch.Tensor | None
) -> torch.Tensor:
    left, right = _sides(a, trans_a, b, trans_b)
    if bias is None:
        return torch.mm(left, right)
    return torch.addmm(bias.to(left.dtype), left, right)


def _operands(first: Any, second: Any) -> tuple[torch.Tensor, torch.Tensor, bool]:
    """(first, second, quantized): plain tensors of one dtype, and whether either was quantized."""
    a, b = plain(first), plain(second)
    quantized = is_quantized(first) or is_quantized(second)
    if a.dtype != b.dtype:
        wide = torch.promote_types(a.dtype, b.dtype)
        a, b = a.to(wide), b.to(wide)
    return a, b, quantized


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

    Forward: D = α·op(B)·op(A) + ``bias``, through GELU with ``gelu``. With ``grad``, ``gelu`` multiplies by
    the derivative of GELU at ``gelu_in``, and a ``bias`` requests its gradient: the sum over the rows of
    D with ``gelu``, else of B. ``accumulate`` adds β·D (β = 1 if not given).
    """
    check(quantizer)
    if comm_overlap is not None:
        raise UnsupportedError("overlap with communication is not supported by default.flagos_rs")
    if beta and not accumulate:
        raise ValueError(f"beta={beta} has nothing to multiply: accumulate is not set")
    if accumulate and D is None:
        raise ValueError("accumulate needs the tensor D to add to")
    if grad and gelu and gelu_in is None:
        raise ValueError("the gradient of GELU needs gelu_in")
    a, b, quantized = _operands(A, B)
    dtype = torch_dtype(output_dtype) or (torch.bfloat16 if quantized else plain(A).dtype)
    shape = _output_shape(a, transA, b, transB)
    if D is not None and not is_quantized(D) and D.numel() != _count(shape):
        raise ValueError(f"D must have the shape {tuple(shape)}, got {tuple(D.shape)}")
    wide = torch.float64 if a.dtype == torch.float64 else torch.float32
    added = None if grad else bias
    if dtype == a.dtype and alpha == 1.0 and not accumulate and not (grad and gelu):
        # The library adds the bias before it rounds.
        product = _product(a, transA, b, transB, added)
    else:
        # The epilogue continues with the unrounded sum, in `wide`.
        product = _wide_product(a, transA, b, transB, wide)
        product = product if alpha == 1.0 else product * alpha
        product = product if added is None else product + added.to(wide)
    pre_gelu = None
    if gelu and not grad:
        pre_gelu = product.to(dtype).reshape(shape)
        product = F.gelu(product, approximate="tanh")
    elif gelu:
        assert gelu_in is not None
        at = gelu_in.reshape(product.shape).to(product.dtype)
        product = _aten.gelu_backward(product, at, approximate="tanh")
    bias_grad = None
    if bias is not None and grad:
        summed = product if gelu else _matrix(b)
        bias_grad = summed.sum(0, dtype=wide).to(dtype)
    result = _store(product, shape, dtype, D, quantizer, accumulate, 1.0 if beta is None else beta)
    if gelu_in is not None and pre_gelu is not None:
        pre_gelu = assign(gelu_in, pre_gelu.reshape(gelu_in.shape).to(gelu_in.dtype))
    return [result, bias_grad, pre_gelu, extra_output]


def _count(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _wide_product(
    a: torch.Tensor, trans_a: bool, b: torch.Tensor, trans_b: bool, wide: torch.dtype
) -> torch.Tensor:
    narrow = a.dtype in (torch.float16, torch.bfloat16)
    if narrow and not a.is_cpu and has_kernel("aten::mm.dtype", a):
        # 16-bit tensor cores, with the float32 sum returned unrounded.
        return torch.mm(*_sides(a, trans_a, b, trans_b), out_dtype=torch.float32)
    return torch.mm(*_sides(a.to(wide), trans_a, b.to(wide), trans_b))


def _store(
    product: torch.Tensor,
    shape: list[int],
    dtype: torch.dtype,
    out: Any,
    quantizer: Any,
    accumulate: bool,
    beta: float,
) -> Any:
    product = product.reshape(shape)
    if quantizer is not None or is_quantized(out):
        if accumulate:
            raise UnsupportedError(
                "accumulating into a quantized tensor is not supported by default.flagos_rs"
            )
        return quantize(product.to(dtype), quantizer, out)
    if out is None:
        return product.to(dtype)
    product = product.reshape(out.shape)
    if accumulate:
        product = product + beta * out.detach().to(product.dtype)
    return assign(out, product.to(out.dtype))


def get_num_cublas_streams() -> int:
    """How many workspaces a call of `te_general_grouped_gemm` brings: as many as the native one uses."""
    return 4


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
    """One product per pair, written into ``D``. Returns ``bias``, or the new ``D`` where ``D`` is None.

    With ``single_output`` the results follow each other in the rows of ``D[0]``. An empty bias or input of
    GELU means none. With ``grad`` the tensors of ``bias`` receive the gradients.
    """
    dtype = torch_dtype(D_type)
    if single_output and D is None:
        raise ValueError("single_output needs the tensor to write to")
    operands = [_operands(a, b)[:2] for a, b in zip(A, B, strict=True)]
    shapes = [_output_shape(a, transa, b, transb) for a, b in operands]
    allocated = D is None
    if D is None:
        D = [
            a.new_empty(shape, dtype=dtype) for shape, (a, _) in zip(shapes, operands, strict=True)
        ]
    if single_output:
        rows = [_count(shape[:-1]) for shape in shapes]
        targets = list(_matrix(D[0])[: sum(rows)].split(rows))
    else:
        targets = list(D)
    for (a, b), target, b_i, g_i in zip(operands, targets, bias, pre_gelu_out, strict=True):
        has_bias, has_gelu = b_i.numel() > 0, g_i.numel() > 0
        _, bias_grad, *_ = generic_gemm(
            a,
            transa,
            b,
            transb,
            target,
            None,
            target.dtype,
            b_i if has_bias else None,
            bias_type,
            has_gelu,
            g_i if has_gelu else None,
            grad,
            None,
            0,
            accumulate,
            use_split_accumulator,
        )
        if bias_grad is not None:
            assign(b_i, bias_grad.to(b_i.dtype))
    return D if allocated else bias
