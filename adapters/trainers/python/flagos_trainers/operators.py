"""DeepSpeed's multi-tensor optimizers as operators of the plan, with the signatures of its CUDA extensions.

``deepspeed::multi_tensor_adam``, ``deepspeed::multi_tensor_lion`` and ``deepspeed::lamb`` write to the parameters and
to the optimizer's state. As in DeepSpeed's kernels the flag of an overflow is not read, so that infinities spread,
and everything is computed in float32 whatever the dtype of the tensors.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from flagos import Operator, UnsupportedError, _core

Tensors = Sequence[Tensor]

multi_tensor_adam = Operator("deepspeed::multi_tensor_adam")
multi_tensor_lion = Operator("deepspeed::multi_tensor_lion")
lamb = Operator("deepspeed::lamb")


def _wide(tensors: Tensors) -> list[Tensor]:
    """The tensors in float32; the same objects where they are that already."""
    return [tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in tensors]


def _store(wide: Tensors, tensors: Tensors) -> None:
    """Writes results back where they were computed in copies."""
    for result, tensor in zip(wide, tensors, strict=True):
        if result is not tensor:
            tensor.copy_(result)


def _corrections(beta1: float, beta2: float, step: int, wanted: int) -> tuple[float, float]:
    return (1 - beta1**step, 1 - beta2**step) if wanted else (1.0, 1.0)


@torch.no_grad()
def _adam_reference(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Sequence[Tensors],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """``tensor_lists`` are gradients, parameters, averages and averages of squares; ``mode`` 1 is AdamW."""
    given, *written = tensor_lists
    grads = _wide(given)
    params, averages, squares = (_wide(tensors) for tensors in written)
    first, second = _corrections(beta1, beta2, step, bias_correction)
    if mode == 0 and weight_decay:
        grads = list(torch._foreach_add(grads, params, alpha=weight_decay))
    torch._foreach_mul_(averages, beta1)
    torch._foreach_add_(averages, grads, alpha=1 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1 - beta2)
    denominators = torch._foreach_sqrt(torch._foreach_div(squares, second))
    torch._foreach_add_(denominators, epsilon)
    updates = torch._foreach_div(torch._foreach_div(averages, first), denominators)
    if mode == 1 and weight_decay:
        torch._foreach_add_(updates, params, alpha=weight_decay)
    torch._foreach_add_(params, updates, alpha=-lr)
    for wide, tensors in zip((params, averages, squares), written, strict=True):
        _store(wide, tensors)


@torch.no_grad()
def _adam_fused(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Sequence[Tensors],
    lr: float,
    beta1: float,
    beta2: float,
    epsilon: float,
    step: int,
    mode: int,
    bias_correction: int,
    weight_decay: float,
) -> None:
    """torch's own fused kernel of Adam, which reads and writes every tensor once."""
    grads, params, averages, squares = tensor_lists
    if not bias_correction:
        raise UnsupportedError("torch's fused Adam always corrects the bias")
    if len({tensor.dtype for tensors in tensor_lists for tensor in tensors}) > 1:
        raise UnsupportedError("torch's fused Adam takes one dtype")
    # The kernel only reads the steps, so one tensor serves all parameters.
    steps = [torch.full((), float(step), device=params[0].device)] * len(params)
    kernel = torch._fused_adamw_ if mode == 1 else torch._fused_adam_
    kernel(
        list(params),
        list(grads),
        list(averages),
        list(squares),
        [],
        steps,
        lr=lr,
        beta1=beta1,
        beta2=beta2,
        weight_decay=weight_decay,
        eps=epsilon,
        amsgrad=False,
        maximize=False,
    )


@torch.no_grad()
def _lion_reference(
    chunk_size: int,
    noop_flag: Tensor,
    tensor_lists: Sequence[Tensors],
    lr: float,
    beta1: float,
    beta2: float,
    step: int,
    weight_decay: float,
) -> None:
    """``tensor_lists`` are gradients, parameters and averages."""
    given, *written = tensor_lists
    grads = _wide(given)
    params, averages = (_wide(tensors) for tensors in written)
    directions = torch._foreach_mul(averages, beta1)
    torch._foreach_add_(directions, grads, alpha=1 - beta1)
    # As in DeepSpeed's kernel 0 counts as negative, where torch.sign has 0.
    updates = [torch.where(direction > 0, -lr, lr) for direction in directions]
    torch._foreach_mul_(params, 1 - lr * weight_decay)
    torch._foreach_add_(params, updates)
    torch._foreach_mul_(averages, beta2)
    torch._foreach_add_(averages, grads, alpha=1 - beta2)
    for wide, tensors in zip((params, averages), written, strict=True):
        _store(wide, tensors)


@torch.no_grad()
def _lamb_reference(
    p: Tensor,
    p_copy: Tensor,
    m: Tensor,
    v: Tensor,
    g: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    max_coeff: float,
    min_coeff: float,
    eps: float,
    grad_scale: float,
    step: int,
    mode: int,
    bias_correction: int,
    decay: float,
) -> Tensor:
    """Writes p, m, v, and p_copy unless it is empty. Returns the coefficient of the layer, [1]."""
    (grad, param, average, square) = _wide((g, p, m, v))
    grad = grad / grad_scale
    average.mul_(beta1).add_(grad, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
    denominator = (square + eps).sqrt() if mode == 0 else square.sqrt() + eps
    update = (average / denominator).add_(param, alpha=decay)
    weight_norm, update_norm = param.norm(), update.norm()
    ratio = (weight_norm / update_norm).clamp(min_coeff, max_coeff)
    coefficient = torch.where((weight_norm != 0) & (update_norm != 0), ratio, 1.0)
    first, second = _corrections(beta1, beta2, step, bias_correction)
    param.sub_(update * (lr * second**0.5 / first * coefficient))
    _store((param, average, square), (p, m, v))
    if p_copy.numel():
        p_copy.copy_(param)
    return coefficient.reshape(1)


multi_tensor_adam.offer(
    _adam_fused,
    impl_id="torch.multi_tensor_adam",
    kind="vendor",
    vendor=_core.vendor_info()["name"],
    backend="torch",
)
multi_tensor_adam.offer(
    _adam_reference,
    impl_id="reference.multi_tensor_adam",
    kind="reference",
    backend="reference",
)
multi_tensor_lion.offer(
    _lion_reference,
    impl_id="reference.multi_tensor_lion",
    kind="reference",
    backend="reference",
)
lamb.offer(_lamb_reference, impl_id="reference.lamb", kind="reference", backend="reference")
