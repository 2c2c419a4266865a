"""torch's ring of `context_parallel` over ranks that have a part of the sequence each, with the CPU's attention kernel.

Forward and backward are an operator each, opaque to `torch.compile`: the ring looks at switches of torch such as load
balancing, which are no part of a compiled graph's guards, nor of the keys of caches on disk. In the graph itself they
would be those of the first call, and the results of a later one wrong.
"""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch.distributed.distributed_c10d import ProcessGroup, _resolve_process_group
from torch.distributed.tensor import DTensor

from flagos.messages import described

aten = torch.ops.aten
FORWARD = aten._scaled_dot_product_flash_attention_for_cpu.default
BACKWARD = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
OF_TORCH = aten._scaled_dot_product_flash_attention.default
MODULE = "torch.distributed.tensor.experimental._context_parallel._attention"
NEEDED = ("_templated_ring_attention", "_templated_ring_attention_backward", "custom_ops")

SEQUENCE = 2
"""The dimension of the tensors (B, H, S, E), and of the logsumexp (B, H, S)."""


def active() -> bool:
    """Whether `context_parallel` has put its handlers in place. Fails for a torch whose way is another."""
    _module()
    return OF_TORCH in DTensor._op_dispatcher._custom_op_handlers


@cache
def _module() -> ModuleType:
    # A split sequence within an unknown context_parallel would be taken for a tensor to be gathered: wrong in silence.
    try:
        module = importlib.import_module(MODULE)
        missing = [name for name in NEEDED if not hasattr(module, name)]
        if missing or OF_TORCH not in module.custom_ops:
            raise ImportError(f"{MODULE} has no {', '.join(missing) or 'handler of attention'}")
    except ImportError as error:
        raise NotImplementedError(
            f"{FORWARD} of a sequence that is split over ranks: the context parallelism of torch {torch.__version__} is"
            f" not the one that flagos knows ({described(error)}). Gather query, key and value before."
        ) from error
    return module


def _group(name: Any) -> ProcessGroup:
    return _resolve_process_group(name)


def _check_active() -> None:
    if not active():
        raise NotImplementedError(
            f"{FORWARD}: compiled within context_parallel, and called outside of it"
        )


@torch.library.custom_op(
    "flagos::ring_attention",
    mutates_args=(),
    schema="(Tensor query, Tensor key, Tensor value, float dropout_p, bool is_causal, float? scale, str group)"
    " -> (Tensor, Tensor)",
)
def forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    group: str,
) -> tuple[torch.Tensor, ...]:
    """Output (B, H, S, E) and logsumexp (B, H, S) of this rank's part of the sequence; contiguous."""
    _check_active()
    results = _module()._templated_ring_attention(
        _group(group),
        SEQUENCE,
        FORWARD,
        query=query,
        key=key,
        value=value,
        is_causal=is_causal,
        dropout_p=dropout_p,
        scale=scale,
    )
    return tuple(result.contiguous() for result in results)


@forward.register_fake
def _(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    group: str,
) -> tuple[torch.Tensor, ...]:
    results = FORWARD(query, key, value, dropout_p, is_causal, scale=scale)
    return tuple(result.contiguous() for result in results)


@torch.library.custom_op(
    "flagos::ring_attention_backward",
    mutates_args=(),
    schema="(Tensor grad_out, Tensor query, Tensor key, Tensor value, Tensor out, Tensor logsumexp, float dropout_p,"
    " bool is_causal, float? scale, str group) -> (Tensor, Tensor, Tensor)",
)
def backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    group: str,
) -> tuple[torch.Tensor, ...]:
    """The gradients of query, key and value, of this rank's part of the sequence; contiguous."""
    _check_active()
    results = _module()._templated_ring_attention_backward(
        _group(group),
        SEQUENCE,
        BACKWARD,
        grad_out=grad_out,
        grad_out_name="grad_out",
        query=query,
        key=key,
        value=value,
        out=out,
        logsumexp=logsumexp,
        is_causal=is_causal,
        dropout_p=dropout_p,
        scale=scale,
    )
    # The gradients of key and value are parts of one buffer, and results of an operator may not be.
    return tuple(result.clone(memory_format=torch.contiguous_format) for result in results)


@backward.register_fake
def _(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *others: object,
) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.empty_like(x, memory_format=torch.contiguous_format) for x in (query, key, value)
    )
