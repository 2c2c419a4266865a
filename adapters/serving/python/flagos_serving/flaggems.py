"""FlagGems' kernels for engines' operators. A wrapper declines, before it writes, what its kernel gets wrong.

The wrappers have the signatures of `flagos_serving.references`. Kernels of FlagGems 5.0.2 that are left out:
``reshape_and_cache_flash`` takes a cache of an older layout, keys and values apart; ``grouped_topk``,
``apply_repetition_penalties``, ``per_token_group_fp8_quant`` and ``cutlass_scaled_mm`` are called by vLLM on CUDA's
platform alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

from flagos import Operator, UnsupportedError, _core
from flagos_serving.references.layers import leave_out
from flagos_serving.verdicts import Verdicts

BACKEND = "flaggems"


class FlagGems:
    """FlagGems for one engine: ``serves`` has, for an operator's name in the plan, the kernel's in `KERNELS`."""

    def __init__(self, serves: Mapping[str, str], verdicts: Verdicts) -> None:
        self.serves, self.verdicts = serves, verdicts
        self.offered: dict[str, Operator] = {}  # the operators that were offered a kernel, by name

    def offer(self, operator: Operator, name: str) -> None:
        """Registers FlagGems' kernel for an operator, if there is one, as the implementation ``flaggems.<name>``."""
        kernel = self.serves.get(operator.name)
        if kernel is None:
            return
        self.offered[operator.name] = operator
        reason = missing()
        operator.offer(
            over_native_tensors(KERNELS[kernel]),
            impl_id=f"{BACKEND}.{name}",
            kind="flagos",
            backend=BACKEND,
            unavailable=reason,
            on_request=None if reason else self.verdicts.not_by_default(operator.name),
        )


@cache
def missing() -> str | None:
    """Why FlagGems cannot serve in this process; None when it can. Does not import it."""
    from torch_fl.flaggems import presence

    if presence.folder() is None:
        return "FlagGems is not installed (no module flag_gems)"
    from torch_fl.flaggems import implementations

    return implementations.why_unusable()


def over_native_tensors(serve: Callable[..., Any]) -> Callable[..., Any]:
    """``serve`` over tensors of the chip's own device, where torch has one: they share the memory of flagos tensors."""
    if _core.vendor_info()["torch_device_type"] is None:
        return serve

    def run(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        views = iter(torch.ops.flagos.as_native([a for a in given if isinstance(a, Tensor)]))
        native = [next(views) if isinstance(a, Tensor) else a for a in given]
        made = serve(*native[: len(args)], **dict(zip(kwargs, native[len(args) :], strict=True)))
        return made.to(given[0].device) if isinstance(made, Tensor) else made

    return run


@cache
def _function(module: str, name: str) -> Callable[..., Any]:
    """A function of FlagGems. Imports FlagGems; raises UnsupportedError where it lacks the function."""
    from torch_fl.flaggems import package

    package.load()
    try:
        found: Callable[..., Any] = getattr(import_module(f"flag_gems.{module}"), name)
    except (ImportError, AttributeError) as error:
        raise UnsupportedError(f"FlagGems {package.version()} has no {module}.{name}") from error
    return found


def _rms_norm(result: Tensor, x: Tensor, weight: Tensor | None, epsilon: float) -> None:
    if weight is None:
        raise UnsupportedError("FlagGems' rms_norm needs a weight")
    _function("ops.rms_norm", "rms_norm_out")(result, x, (x.shape[-1],), weight, epsilon)


def _fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor | None, epsilon: float) -> None:
    if weight is None:
        raise UnsupportedError("FlagGems' fused_add_rms_norm needs a weight")
    if not (x.is_contiguous() and residual.is_contiguous()):
        raise UnsupportedError(
            "FlagGems' fused_add_rms_norm writes to copies of what is not contiguous"
        )
    _function("fused.fused_add_rms_norm", "fused_add_rms_norm")(
        x, residual, (x.shape[-1],), weight, epsilon
    )


def _rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
    rope_dim_offset: int = 0,
    inverse: bool = False,
) -> None:
    if key is None or rope_dim_offset or inverse or cos_sin_cache.shape[-1] != head_size:
        raise UnsupportedError(
            "FlagGems' apply_rotary_pos_emb rotates all of the heads of queries and keys, forwards"
        )
    cos, sin = cos_sin_cache.chunk(2, dim=-1)
    positions = positions.flatten()
    heads = [x.view(positions.numel(), -1, head_size) for x in (query, key)]
    # Its kernel in place reads elements after other threads may have written them.
    made = _function("fused.rotary_embedding", "apply_rotary_pos_emb")(
        *heads, cos, sin, positions, rotary_interleaved=not is_neox
    )
    for into, rotated in zip(heads, made, strict=True):
        into.copy_(rotated)


def _gated(module: str, kernel: str) -> Callable[..., None]:
    def serve(result: Tensor, x: Tensor) -> None:
        gate, value = x.chunk(2, dim=-1)
        _function(module, kernel)(gate, value, out0=result)

    return serve


def _topk_softmax(
    weights: Tensor,
    experts: Tensor,
    rows: Tensor,
    gating: Tensor,
    renormalize: bool,
    bias: Tensor | None,
    is_padding: Tensor | None = None,
) -> None:
    if bias is not None:
        raise UnsupportedError("FlagGems' topk_softmax knows no bias")
    if not all(t.is_contiguous() for t in (weights, experts, rows, gating)):
        raise UnsupportedError("FlagGems' topk_softmax takes contiguous tensors")
    if gating.shape[1] > 1024 or weights.shape[1] > 32:
        raise UnsupportedError(
            "FlagGems' topk_softmax takes up to 1024 experts, and 32 for a token"
        )
    _function("fused.topk_softmax", "topk_softmax")(weights, experts, rows, gating, renormalize)
    leave_out(weights, experts, is_padding)


def _moe_sum(
    x: Tensor, output: Tensor, topk_ids: Tensor | None = None, expert_map: Tensor | None = None
) -> None:
    if topk_ids is not None and expert_map is not None:
        raise UnsupportedError("FlagGems' moe_sum knows no experts of other ranks")
    if x.stride(-1) != 1 or output.stride(-1) != 1:
        raise UnsupportedError("FlagGems' moe_sum takes rows without gaps")
    _function("fused.moe_sum", "moe_sum")(x, output)


def _numbered(experts: Tensor) -> Tensor:
    """The first expert in the place of none (-1), which these kernels would take for a place before all experts.

    Its weight is 0 there.
    """
    return experts.clamp(min=0)


def _moe_align_block_size(
    topk_ids: Tensor,
    num_experts: int,
    block_size: int,
    sorted_token_ids: Tensor,
    experts_ids: Tensor,
    num_tokens_post_pad: Tensor,
    expert_map: Tensor | None = None,
    scatter_idx: Tensor | None = None,
) -> None:
    if expert_map is not None:
        raise UnsupportedError("FlagGems' moe_align_block_size knows no experts of other ranks")
    if scatter_idx is not None:
        raise UnsupportedError("FlagGems' moe_align_block_size writes no scatter_idx")
    if not topk_ids.is_contiguous():
        raise UnsupportedError("FlagGems' moe_align_block_size takes contiguous numbers")
    _function("fused.moe_align_block_size", "moe_align_block_size_triton")(
        _numbered(topk_ids),
        num_experts,
        block_size,
        sorted_token_ids,
        experts_ids,
        num_tokens_post_pad,
    )


def _concat_and_cache_mla(
    kv_c: Tensor,
    k_pe: Tensor,
    kv_cache: Tensor,
    slot_mapping: Tensor,
    kv_cache_dtype: str,
    scale: Tensor,
    skip_scale: bool = False,
) -> None:
    if kv_cache_dtype != "auto" or kv_cache.dtype != kv_c.dtype:
        raise UnsupportedError(
            "FlagGems' concat_and_cache_mla is verified for a cache of the keys' type alone"
        )
    if kv_c.stride(-1) != 1 or k_pe.stride(-1) != 1 or kv_cache.stride(-1) != 1:
        raise UnsupportedError("FlagGems' concat_and_cache_mla takes rows without gaps")
    _function("fused.concat_and_cache_mla", "concat_and_cache_mla")(
        kv_c, k_pe.view(k_pe.shape[0], -1), kv_cache, slot_mapping, kv_cache_dtype, scale
    )


def _fused_experts(
    x: Tensor,
    w13: Tensor,
    w2: Tensor,
    weights: Tensor,
    experts: Tensor,
    activation: str,
    *,
    weights_on_input: bool = False,
    all_experts: int = -1,
    expert_map: Tensor | None = None,
    bias13: Tensor | None = None,
    bias2: Tensor | None = None,
    limit: float | None = None,
) -> Tensor:
    others = (bias13, bias2, limit)
    if activation != "silu" or weights_on_input or any(one is not None for one in others):
        raise UnsupportedError(
            "FlagGems' experts are gated by silu, without biases, limits and weights on the input"
        )
    if expert_map is not None:
        raise UnsupportedError("FlagGems' fused_experts knows no experts of other ranks")
    result: Tensor = _function("fused.fused_moe", "fused_experts_impl")(
        x.contiguous(), w13, w2, weights, _numbered(experts)
    )
    return result


KERNELS: dict[str, Callable[..., Any]] = {
    "rms_norm": _rms_norm,
    "fused_add_rms_norm": _fused_add_rms_norm,
    "rotary_embedding": _rotary_embedding,
    "silu_and_mul": _gated("fused.silu_and_mul", "silu_and_mul_kernel"),
    "gelu_and_mul": _gated("fused.gelu_and_mul", "gelu_none_and_mul_kernel"),
    "gelu_tanh_and_mul": _gated("fused.gelu_and_mul", "gelu_tanh_and_mul_kernel"),
    "topk_softmax": _topk_softmax,
    "moe_sum": _moe_sum,
    "moe_align_block_size": _moe_align_block_size,
    "concat_and_cache_mla": _concat_and_cache_mla,
    "fused_experts": _fused_experts,
}
