"""Operators over lists of tensors: scaling, norms, and optimizers.

``noop_flag`` is an integer tensor on the device. When it is set, nothing is written; the host never waits
for it. ``chunk_size`` divides the work of TransformerEngine's kernels and is ignored here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from te_fl.operators.arguments import (
    assign,
    itself_without_arguments,
    renamed,
    torch_dtype,
    unless,
)
from te_fl.operators.quantization import to_fp8

_Lists = list[list[torch.Tensor]]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.dtype == torch.float64 else tensor.float()


def _flag_not_finite(noop_flag: torch.Tensor, value: torch.Tensor) -> None:
    """Sets the flag if an element of ``value`` is not finite, else leaves it unchanged."""
    bad = ~torch.isfinite(value).all()
    assign(noop_flag, torch.where(bad, torch.ones_like(noop_flag), noop_flag))


def multi_tensor_scale(
    chunk_size: int, noop_flag: torch.Tensor, tensor_lists: _Lists, scale: float | torch.Tensor
) -> None:
    """out = ``scale``·in; ``tensor_lists`` are in, out. Sets the flag when an input is not finite."""
    before = noop_flag.clone()
    for source, target in zip(*tensor_lists, strict=True):
        value = (_wide(source.detach()) * scale).to(target.dtype)
        assign(target, unless(before, value, target.detach()))
        if source.numel():
            _flag_not_finite(noop_flag, source.detach())


#: ``scale`` is a tensor on the device.
multi_tensor_scale_tensor = multi_tensor_scale


def _norms(
    noop_flag: torch.Tensor, tensors: list[torch.Tensor], factor: Any, per_tensor: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    before = noop_flag.clone()
    if not tensors:
        empty = torch.zeros(1, device=noop_flag.device)
        return empty, empty.new_zeros(0)
    wide = [_wide(tensor.detach()) for tensor in tensors]
    each = torch.stack(torch._foreach_norm(wide)) * factor
    total = torch.linalg.vector_norm(each).reshape(1).float()
    _flag_not_finite(noop_flag, total)
    zero = torch.zeros_like(total)
    each = unless(before, each.float(), torch.zeros_like(each.float()))
    return unless(before, total, zero), each if per_tensor else each.new_zeros(0)


def multi_tensor_l2norm(
    chunk_size: int, noop_flag: torch.Tensor, tensor_lists: _Lists, per_tensor: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """(norm of all, norm of each or empty), in float32. Sets the flag when the norm of all is not finite."""
    return _norms(noop_flag, tensor_lists[0], 1.0, bool(per_tensor))


@renamed(scale="inv_scale")
def multi_tensor_unscale_l2norm(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    inv_scale: torch.Tensor,
    per_tensor: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The norms of the tensors times ``inv_scale``, as in :func:`multi_tensor_l2norm`. The tensors are unchanged."""
    factor = inv_scale.reshape(()) if isinstance(inv_scale, torch.Tensor) else inv_scale
    return _norms(noop_flag, tensor_lists[0], factor, bool(per_tensor))


class _Step(NamedTuple):
    """The arguments of every Adam after the lists of tensors."""

    lr: Any
    beta1: float
    beta2: float
    epsilon: float
    step: Any
    mode: int
    bias_correction: int
    weight_decay: float


def _fused_adam(
    noop_flag: torch.Tensor,
    params: list[torch.Tensor],
    grads: list[torch.Tensor],
    exp_avgs: list[torch.Tensor],
    exp_avg_sqs: list[torch.Tensor],
    how: _Step,
) -> None:
    """One step of torch's fused kernel, over tensors of one dtype; it reads the flag on the device."""
    if not params:
        return
    device = params[0].device
    lr, step = how.lr, how.step
    if not how.bias_correction:
        count = torch.full((), 1e9, device=device)  # β¹⁰⁰⁰⁰⁰⁰⁰⁰⁰⁰ is 0: nothing is corrected
    elif isinstance(step, torch.Tensor):
        count = step.to(device=device, dtype=torch.float32).reshape(())
    else:
        count = torch.full((), float(step), device=device)
    kernel = torch._fused_adamw_ if how.mode == 1 else torch._fused_adam_
    if isinstance(lr, torch.Tensor):
        lr = lr.to(dtype=torch.float32).reshape(())
    kernel(
        params,
        grads,
        exp_avgs,
        exp_avg_sqs,
        [],
        [count] * len(params),
        lr=lr,
        beta1=how.beta1,
        beta2=how.beta2,
        weight_decay=how.weight_decay,
        eps=how.epsilon,
        amsgrad=False,
        maximize=False,
        grad_scale=None,
        found_inf=(noop_flag != 0).to(torch.float32).reshape(()),
    )


def _adam(
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    how: _Step,
    inv_scale: torch.Tensor | None = None,
) -> None:
    """One step of Adam, computed in float32 (float64 for float64), whatever the dtypes of the tensors.

    ``tensor_lists``: grads, params, first moments, second moments, and optionally master parameters.
    """
    if len(tensor_lists) not in (4, 5):
        raise ValueError(f"tensor_lists must be 4 or 5 lists, got {len(tensor_lists)}")
    if len({len(tensors) for tensors in tensor_lists}) > 1:
        lengths = ", ".join(str(len(tensors)) for tensors in tensor_lists)
        raise ValueError(f"tensor_lists must be of one length, got {lengths}")
    if how.mode not in (0, 1):
        raise ValueError(f"mode must be 0 (decay in the gradient) or 1 (beside it), got {how.mode}")
    with torch.no_grad():
        grads, params, firsts, seconds = tensor_lists[:4]
        masters = tensor_lists[4] if len(tensor_lists) == 5 else params
        # The fused kernel walks through memory and ignores strides.
        work = [
            [_wide(t.detach()).contiguous() for t in tensors]
            for tensors in (masters, grads, firsts, seconds)
        ]
        if inv_scale is not None:
            work[1] = [g * inv_scale.reshape(()).to(g.dtype) for g in work[1]]
        p, g, m, v = work
        _fused_adam(noop_flag, p, g, m, v, how)
        for result, computed in zip(
            (masters, firsts, seconds), (work[0], work[2], work[3]), strict=True
        ):
            for target, value in zip(result, computed, strict=True):
                # The kernel has written a contiguous float32 tensor in place.
                if target.data_ptr() != value.data_ptr():
                    target.copy_(unless(noop_flag, value.to(target.dtype), target))
        if masters is not params:
            for target, value in zip(params, work[0], strict=True):
                target.copy_(unless(noop_flag, value.to(target.dtype), target))


@itself_without_arguments
@renamed(eps="epsilon")
def multi_tensor_adam(
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
    """One step of Adam (``mode`` 0: decay in the gradient) or AdamW (1: beside it).

    ``tensor_lists``: grads, params, first moments, second moments, and optionally master parameters.
    """
    how = _Step(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
    _adam(noop_flag, tensor_lists, how)


@renamed(eps="epsilon")
def multi_tensor_adam_capturable(
    chunk_size: int,
    noop_flag: torch.Tensor,
    tensor_lists: _Lists,
    lr: torch.Tensor,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: torch.Tensor,
    mode: int,
    bias_correction: int,
    weight_decay: float,
    inv_scale: torch.Tensor,
) -> None:
    """:func:`multi_tensor_adam` with ``lr``, ``step`` and ``inv_scale`` on the device.

    ``inv_scale`` multiplies the gradients.
    """
    how = _Step(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
    _adam(noop_flag, tensor_lists, how, inv_scale)


#: :func:`multi_tensor_adam_capturable` with master parameters as the fifth list.
multi_tensor_adam_capturable_master = multi_tensor_adam_capturable


def join_remainder(param: torch.Tensor, remainder: torch.Tensor) -> torch.Tensor:
    """The float32 number of a bfloat16 parameter, rounded to nearest, and its int16 remainder (the low half)."""
    high = param.view(torch.int16).to(torch.int32)
    high = torch.where(remainder < 0, high - 1, high)
    low = remainder.to(torch.int32) & 0xFFFF
    return ((high << 16) | low).view(torch.float32)


def split_remainder(master: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse of :func:`join_remainder`: (parameter as int16 bits, remainder)."""
    bits = master.view(torch.int32)
    remainder = (bits & 0xFFFF).to(torch.int16)
    high = (bits >> 16).to(torch.int16)
    return torch.where(remainder < 0, high + 1, high), remainder


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
    """Adam over bfloat16 parameters whose low halves are the fifth list, in int16."""
    with torch.no_grad():
        grads, params, firsts, seconds, remainders = tensor_lists
        masters = [join_remainder(p, r) for p, r in zip(params, remainders, strict=True)]
        how = _Step(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
        _adam(noop_flag, [grads, masters, firsts, seconds], how)
        # When the flag is set, the masters are unchanged and split into the same parameters and remainders.
        for master, param, remainder in zip(masters, params, remainders, strict=True):
            high, low = split_remainder(master)
            param.view(torch.int16).copy_(high)
            remainder.copy_(low)


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
    """Adam with FP8 parameters.

    ``tensor_lists``: grads, params as bytes, moments, master parameters, scales, amaxes (raised to the
    largest master parameter) and inverse scales (written).
    """
    dtype = torch_dtype(fp8_dtype)
    assert dtype is not None
    with torch.no_grad():
        grads, params, firsts, seconds, masters, scales, amaxes, inverses = tensor_lists
        how = _Step(lr, beta1, beta2, epsilon, step, mode, bias_correction, weight_decay)
        _adam(noop_flag, [grads, masters, firsts, seconds], how)
        lists = zip(params, masters, scales, amaxes, inverses, strict=True)
        for param, master, scale, amax, inverse in lists:
            data = to_fp8(master, scale.reshape(()), dtype).view(param.dtype).view(param.shape)
            param.copy_(unless(noop_flag, data, param))
            largest = torch.maximum(amax, master.abs().amax().float().reshape(amax.shape))
            amax.copy_(unless(noop_flag, largest, amax))
            inverse.copy_(unless(noop_flag, (1.0 / scale).reshape(inverse.shape), inverse))


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
    """One step of SGD.

    ``tensor_lists``: grads, params, momentum buffers, and optionally float16 copies of the parameters.
    Gradients are multiplied by ``scale``. In the ``first_run`` the buffers take the gradients.
    """
    with torch.no_grad():
        grads, params, buffers = tensor_lists[:3]
        copies = tensor_lists[3] if len(tensor_lists) == 4 else [None] * len(params)
        for grad, param, buffer, copy in zip(grads, params, buffers, copies, strict=True):
            g, p = _wide(grad) * scale, _wide(param)
            if wd != 0 and not wd_after_momentum:
                g = g + wd * p
            if momentum != 0:
                m = g if first_run else _wide(buffer) * momentum + (1 - dampening) * g
                g = g + momentum * m if nesterov else m
                buffer.copy_(unless(noop_flag, m.to(buffer.dtype), buffer))
            if wd != 0 and wd_after_momentum:
                g = g + wd * p
            param.copy_(unless(noop_flag, (p - lr * g).to(param.dtype), param))
            if copy is not None:
                copy.copy_(unless(noop_flag, param.to(copy.dtype), copy))
