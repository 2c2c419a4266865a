"""Native kernels that round otherwise: each result of theirs is changed at random by as much as rounding may.

This is Monte Carlo arithmetic, an operator at a time. With ε the unit of the result's dtype
(`torch.finfo(dtype).eps`) and ξ uniform in [-1, 1], an element y becomes y + ε·|y|·ξ; for 16-bit types, whose results
are computed in float32 and rounded once, y + ε/2·|y|·ξ. In an operator that adds K numbers up, η·√K/8·max(|y|, rms)·ξ
is added to it, with η the unit of the sum (of float32 for 16-bit types): the order of a sum moves small results by as
much as large ones, and adding one by one has errors of about that size. Operators that only move, select or compare
numbers are exact in every kernel, and stay as they are, and so do those that draw random numbers.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

_DEVICES = ("flagos",)
#: Operators that add up products or elements, by the beginnings of their names.
_SUMS_TEXT = """
_adaptive_avg_pool _batch_norm _cdist _conv _efficient_attention _flash_attention _foreach_norm _fused_rms_norm
_grouped_mm _linear _native_batch_norm _scaled_dot_product _scaled_mm _sparse _thnn_fused _upsample
adaptive_avg_pool addbmm addmm addmv addr avg_pool baddbmm batch_norm bmm cdist conv cudnn_batch_norm
cudnn_convolution cumprod cumsum dot embedding_dense_backward grid_sampler gru index_add index_put index_reduce
linalg_vector_norm linear logcumsumexp logsumexp lstm mean mkldnn_convolution mkldnn_linear mm mv nansum
native_batch_norm native_group_norm native_layer_norm nll_loss norm prod rms_norm scatter_add scatter_reduce
slow_conv std sum thnn_conv trace upsample var vdot
"""
_SUMS = tuple(_SUMS_TEXT.split())
#: Operators whose results are numbers that they were given, or are exact.
_EXACT_TEXT = """
_foreach_abs _foreach_copy _foreach_maximum _foreach_minimum _foreach_neg _foreach_zero _to_copy abs
adaptive_max_pool2d amax amin arange as_strided_scatter bucketize cat ceil channel_shuffle clamp clamp_max clamp_min
clone constant_pad_nd contiguous copy diag_embed embedding empty empty_like empty_strided eye fill flip floor fmax
fmin full full_like gather hardtanh im2col index index_select kthvalue lift_fresh masked_fill masked_scatter
masked_select max max_pool2d_with_indices max_pool2d_with_indices_backward max_pool3d_with_indices maximum median
min minimum mode neg new_empty new_full new_ones new_zeros nonzero one_hot ones ones_like pixel_shuffle
pixel_unshuffle reflection_pad1d reflection_pad2d relu repeat repeat_interleave replication_pad1d replication_pad2d
resize roll round scalar_tensor scatter select_backward select_scatter set sgn sign slice_backward slice_scatter
sort stack take threshold threshold_backward topk tril triu trunc unfold_backward where zero zeros zeros_like
"""
_EXACT = frozenset(_EXACT_TEXT.split())


def begin(seed: int) -> None:
    """From now on, results on the device are rounded otherwise, in this thread and in the backward passes it starts."""
    OtherRounding(seed).__enter__()


class OtherRounding(TorchDispatchMode):
    """Changes the results of computing operators."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._seed = seed
        self._generators: dict[torch.device, torch.Generator] = {}
        self._known: dict[Any, tuple[bool, bool, tuple[int, ...]]] = {}

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call the operator, and change what it computed."""
        result = func(*args, **(kwargs or {}))
        if func not in self._known:
            self._known[func] = _kind(func)
        computes, sums, written = self._known[func]
        if computes:
            named = kwargs or {}
            changed = [args[place] for place in written if place < len(args)]
            changed += [value for name, value in named.items() if name.startswith("out")]
            leaves = {id(leaf): leaf for leaf in pytree.tree_leaves((changed, result))}
            for leaf in leaves.values():
                if _is_changed(leaf):
                    self._change(leaf, _terms(func, args, leaf) if sums else 0)
        return result

    def _change(self, tensor: torch.Tensor, terms: int) -> None:
        """Change a result, which adds up so many numbers."""
        device, dtype = tensor.device, tensor.dtype
        if device not in self._generators:
            self._generators[device] = torch.Generator(device=device).manual_seed(self._seed)
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        unit = torch.finfo(dtype).eps / (2 if dtype.itemsize == 2 else 1)
        drawn = torch.empty(tensor.shape, dtype=wide, device=device)
        drawn.uniform_(-1, 1, generator=self._generators[device])
        value = tensor.to(wide)
        finite = torch.where(value.isfinite(), value, torch.zeros_like(value)).abs()
        size = finite * unit
        if terms > 1 and tensor.numel() > 1:
            rms = finite.square().mean().sqrt()
            size += torch.maximum(finite, rms) * (torch.finfo(wide).eps * math.sqrt(terms) / 8)
        # Infinity stays infinity, and NaN NaN.
        tensor.copy_(value + torch.where(value.isfinite(), size * drawn, torch.zeros_like(value)))


def _terms(func: Any, args: tuple[Any, ...], result: torch.Tensor) -> int:
    """About how many numbers an element of a result is the sum of."""
    given = [one for one in args if isinstance(one, torch.Tensor)]
    name = func._schema.name.partition("::")[2]
    if "conv" in name and len(given) > 1:
        # Forward and for the input's gradient: the weight's elements for a channel; for its own gradient: the places.
        weight = given[2] if name.endswith("_backward") and len(given) > 2 else given[1]
        own = name.endswith("_backward") and result.shape == weight.shape
        return given[0].numel() // max(1, weight.shape[0]) if own else weight[0].numel()
    matrices = [one for one in given if one.dim() >= 2]
    if name.startswith(("mm", "bmm", "addmm", "baddbmm", "linear")) and len(matrices) > 1:
        return int(matrices[-2].shape[-1])
    return given[0].numel() // max(1, result.numel()) if given else 0


def _is_changed(leaf: Any) -> bool:
    return (
        isinstance(leaf, torch.Tensor)
        and leaf.device.type in _DEVICES
        and leaf.layout == torch.strided
        and leaf.is_floating_point()
        and leaf.dtype.itemsize > 1
        and leaf.numel() > 0
    )


def _kind(func: Any) -> tuple[bool, bool, tuple[int, ...]]:
    """Whether an operator computes, whether it adds many numbers up, and which arguments it writes to."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace not in ("aten", "te"):
        return False, False, ()
    schema = func._schema
    name = schema.name.partition("::")[2]
    written = tuple(
        place
        for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
    views = any(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    drawn = torch.Tag.nondeterministic_seeded in func.tags
    plain = name.removesuffix("_")
    exact = drawn or views or plain in _EXACT
    given = any("Tensor" in str(one.type) for one in schema.arguments)
    return given and not exact, plain.startswith(_SUMS), written
