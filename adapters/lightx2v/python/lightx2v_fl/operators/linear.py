"""``linear(x, weight, bias)``: x [tokens, in] times weight [in, out] plus bias [out], or None."""

from __future__ import annotations

import torch
from torch import Tensor

from lightx2v_fl.operators.implementations import declare, flaggems_function


def _native(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    return torch.mm(x, weight) if bias is None else torch.addmm(bias, x, weight)


def _reference(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    product = x.float() @ weight.float()
    return (product if bias is None else product + bias.float()).to(x.dtype)


def _flaggems(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    result: Tensor
    if bias is None:
        result = flaggems_function("ops.mm", "mm")(x, weight)
    else:
        result = flaggems_function("ops.addmm", "addmm")(bias, x, weight)
    return result


linear = declare("linear", native=_native, reference=_reference, flaggems=_flaggems)
