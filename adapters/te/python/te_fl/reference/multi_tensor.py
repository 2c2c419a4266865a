"""Operators over lists of tensors, one tensor after another: scaling, norms, and optimizers.

They compute in float32 (float64 for float64) and write in each tensor's dtype. ``noop_flag`` is an integer tensor of
one element on the device; when it is not 0, nothing is written. ``chunk_size`` divides the work of kernels and is
ignored.
"""

from __future__ import annotations

from typing import Any

import torch

from te_fl.operators.arguments import (
    assign,
    itself_without_arguments,
    renamed,
    torch_dtype,
    unless,
)
from te_fl.reference.precision import wide
from te_fl.reference.quantization import encode

_Lists = list[list[torch.Tensor]]


def _write(target: torch.Tensor, value: torch.Tensor, noop_flag: torch.Tensor) -> None:
    value = value.reshape(target.shape).to(target.dtype)
    assign(target, unless(noop_flag, value, target.detach()))


def _flag_unless_finite(noop_flag: torch.Tensor, finite: torch.Tensor) -> None:
    assign(noop_flag, torch.where(finite, noop_flag, 1).to(noop_flag.dtype))


def multi_tensor_scale(
    chunk_size: int, noop_flag: torch.Tensor, tensor_lists: _Lists, scale: float | torch.Tensor
) -> None:
    """out = ``scale``·in; ``tensor_lists`` are in, out. Sets the flag when an input is not finite."""
    before = noop_flag.clone()
    for source, target in zip(*tensor_lists, strict=True):
        source = source.detach()
        _write(target, wide(source) * scale, before)
        _flag_unless_finite(noop_flag, torch.isfinite(source).all())


#: ``scale`` is a tensor of one element on the device.
multi_tensor_scale_tensor = multi_tensor_scale


def multi_tensor_l2norm(
    chunk_size: int, noop_flag: torch.Tensor, tensor_lists: _Lists, per_tensor: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(√Σ x² over all tensors (1), the norm of each tensor or empty), in float32.

    Sets the flag when the norm of all is not finite. Under a flag that was set the norms are 0.
    """
    return multi_tensor_unscale_l2norm(
        chunk_size, noop_flag, tensor_lists, torch.ones((), device=noop_flag.device), per_tensor
    )


@renamed(scale="inv_scale")
def multi_tensor_unscale_l2norm(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    inv_scale: torch.Tensor,
    per_tensor: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`multi_tensor_l2norm` of the tensors times ``inv_scale``. The tensors are unchanged."""
    before = noop_flag.clone()
    squares = [(wide(x.detach()) * inv_scale).square().sum() for x in tensor_lists[0]]
    each = torch.stack(squares) if squares else torch.zeros(0, device=noop_flag.device)
    total = each.sum().reshape(1).sqrt().float()
    each = each.sqrt().float()
    _flag_unless_finite(noop_flag, torch.isfinite(total).all())
    total = unless(before, total, torch.zeros_like(total))
    each = unless(before, each, torch.zeros_like(each))
    return total, each if per_tensor else each.new_zeros(0)


def _check(tensor_lists: _Lists, mode: int) -> None:
    if len(tensor_lists) not in (4, 5):
        raise ValueError(f"tensor_lists must be 4 or 5 lists, got {len(tensor_lists)}")
    if len({len(tensors) for tensors in tensor_lists}) > 1:
        lengths = ", ".join(str(len(tensors)) for tensors in tensor_lists)
        raise ValueError(f"tensor_lists must be of one length, got {lengths}")
    if mode not in (0, 1):
        raise ValueError(f"mode must be 0 (decay in the gradient) or 1 (beside it), got {mode}")


@itself_without_arguments
@renamed(eps="epsilon")
def multi_tensor_adam(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    lr: Any,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: Any,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """One step of Adam (Kingma & Ba; ``mode`` 0), or of AdamW (Loshchilov & Hutter; 1).

    ``tensor_lists``: gradients, parameters, first moments m, second moments v, and optionally master
    parameters, which are then stepped and rounded into the parameters.
    """
    multi_tensor_adam_capturable(
        chunk_size, noop_flag, tensor_lists, lr, beta1, beta2, epsilon, step, mode,
        bias_correction, weight_decay, torch.ones((), device=noop_flag.device),
    )  # fmt: skip


@renamed(eps="epsilon")
def multi_tensor_adam_capturable(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    lr: Any,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: Any,
    mode: int,
    bias_correction: int,
    weight_decay: float,
    inv_scale: torch.Tensor,
) -> None:
    """:func:`multi_tensor_adam` with ``lr``, ``step`` and ``inv_scale`` as tensors on the device.

    The gradients are multiplied by ``inv_scale``.
    """
    _check(tensor_lists, mode)
    for grad, param, first, second, *master in zip(*tensor_lists, strict=True):
        p, g, m, v = (
            wide(t.detach()) for t in (master[0] if master else param, grad, first, second)
        )
        g = g * inv_scale
        if mode == 0:
            g = g + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g.square()
        m_hat = m / (1 - beta1**step) if bias_correction else m
        v_hat = v / (1 - beta2**step) if bias_correction else v
        update = m_hat / (v_hat.sqrt() + epsilon)
        if mode == 1:
            update = update + weight_decay * p
        p = p - lr * update
        for target, value in ((first, m), (second, v), (param, p), *((t, p) for t in master)):
            _write(target, value, noop_flag)


#: :func:`multi_tensor_adam_capturable` with master parameters as the fifth list.
multi_tensor_adam_capturable_master = multi_tensor_adam_capturable


@renamed(eps="epsilon")
def multi_tensor_adam_param_remainder(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """:func:`multi_tensor_adam` of float32 parameters that are kept as bfloat16 and an int16 remainder (fifth list).

    As integers, the bits of the float32 number are 65536 · the bits of the bfloat16 number + the remainder.
    """
    grads, params, firsts, seconds, remainders = tensor_lists
    masters = [
        (param.detach().view(torch.int16).int() * 65536 + remainder.int()).view(torch.float32)
        for param, remainder in zip(params, remainders, strict=True)
    ]
    multi_tensor_adam(
        chunk_size, noop_flag, [grads, masters, firsts, seconds], lr, beta1, beta2, epsilon, step,
        mode, bias_correction, weight_decay,
    )  # fmt: skip
    # Under a flag that is set the masters are unchanged, and these writes too.
    for master, param, remainder in zip(masters, params, remainders, strict=True):
        bits = master.view(torch.int32)
        low = bits.to(torch.int16)  # keeps the lower 16 bits
        assign(param.detach().view(torch.int16), ((bits - low.int()) >> 16).to(torch.int16))
        assign(remainder, low)


@renamed(eps="epsilon")
def multi_tensor_adam_fp8(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
    fp8_dtype: Any,
) -> None:
    """:func:`multi_tensor_adam` of master parameters, which are then rounded to FP8.

    ``tensor_lists``: gradients, parameters as bytes, moments m and v, master parameters, and per tensor scale, amax
    (raised to max |master|) and inverse scale (written).
    """
    grads, params, firsts, seconds, masters, scales, amaxes, inverses = tensor_lists
    dtype = torch_dtype(fp8_dtype)
    if dtype is None:
        raise ValueError("multi_tensor_adam_fp8 needs fp8_dtype")
    multi_tensor_adam(
        chunk_size, noop_flag, [grads, masters, firsts, seconds], lr, beta1, beta2, epsilon, step,
        mode, bias_correction, weight_decay,
    )  # fmt: skip
    for param, master, scale, amax, inverse in zip(
        params, masters, scales, amaxes, inverses, strict=True
    ):
        master = master.detach()
        _write(param, encode(master, scale.reshape(()), dtype).view(param.dtype), noop_flag)
        _write(amax, torch.maximum(amax, master.abs().amax().float()), noop_flag)
        _write(inverse, 1.0 / scale, noop_flag)


def multi_tensor_sgd(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    wd: float,
    momentum: float,
    dampening: float,
    lr: float,
    nesterov: bool,
    first_run: bool,
    wd_after_momentum: bool,
    scale: float,
) -> None:
    """One step of SGD: m = ``momentum``·m + (1 − ``dampening``)·g, p = p − ``lr``·m.

    ``tensor_lists``: gradients g, parameters p, momentum buffers m, and optionally copies of the parameters in
    float16. Gradients are multiplied by ``scale``. In the ``first_run`` m = g. With ``nesterov`` the step is
    g + ``momentum``·m. The decay ``wd``·p is added to g, or to the step with ``wd_after_momentum``.
    """
    for grad, param, buffer, *copy in zip(*tensor_lists, strict=True):
        g, p, m = wide(grad.detach()) * scale, wide(param.detach()), wide(buffer.detach())
        if not wd_after_momentum:
            g = g + wd * p
        update = g
        if momentum != 0:
            m = g if first_run else momentum * m + (1 - dampening) * g
            update = g + momentum * m if nesterov else m
            _write(buffer, m, noop_flag)
        if wd_after_momentum:
            update = update + wd * p
        p = p - lr * update
        for target in (param, *copy):
            _write(target, p, noop_flag)
