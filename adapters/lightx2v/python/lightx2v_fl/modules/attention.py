"""``flagos_flash_attn``: attention for LightX2V's models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightx2v.common.ops.attn.template import AttnWeightTemplate
from torch import Tensor

from lightx2v_fl import operators

_FULL_WINDOW = (None, (-1, -1), [-1, -1])


class FlagosAttention(AttnWeightTemplate):
    """Attention over [tokens, heads, dim], or [batch, tokens, heads, dim]; it has no weights."""

    def __init__(self) -> None:
        self.config: dict[str, Any] = {}

    def apply(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        cu_seqlens_q: Tensor | None = None,
        cu_seqlens_kv: Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_kv: int | None = None,
        drop_rate: float = 0.0,
        attn_mask: Tensor | None = None,
        causal: bool = False,
        softmax_scale: float | None = None,
        **kwargs: Any,
    ) -> Tensor:
        """The output, [batch · tokens, heads · dim], with the sequences one after the other.

        Sequences of different lengths are packed: then ``cu_seqlens_q`` and ``cu_seqlens_kv``, int32 on the
        CPU, hold the beginning of each and the end of the last. Arguments for other kernels (the block's
        number, its scheduler) are ignored; arguments that would change the result are refused.
        """
        _refuse(drop_rate, kwargs)
        if _is_packed(q, cu_seqlens_q):
            output = _packed(q, k, v, cu_seqlens_q, cu_seqlens_kv, attn_mask, softmax_scale, causal)
        else:
            batched = (x if x.ndim == 4 else x.unsqueeze(0) for x in (q, k, v))
            output = operators.attention(*batched, attn_mask, softmax_scale, causal)
        flat: Tensor = output.reshape(-1, output.shape[-2] * output.shape[-1])
        return flat

    def apply_with_lse(
        self, q: Tensor, k: Tensor, v: Tensor, softmax_scale: float | None = None
    ) -> tuple[Tensor, Tensor]:
        """Attention to a part of the keys: the output [tokens, heads · dim], and the logarithm of the
        softmax's denominator [tokens, heads], by which ring attention joins the parts."""
        batched = (x if x.ndim == 4 else x.unsqueeze(0) for x in (q, k, v))
        output, lse = operators.attention_with_lse(*batched, softmax_scale)
        heads, dim = output.shape[-2:]
        return output.reshape(-1, heads * dim), lse.reshape(-1, heads)


def _refuse(drop_rate: float, options: Mapping[str, Any]) -> None:
    if drop_rate:
        raise ValueError(f"flagos_flash_attn has no dropout, and drop_rate is {drop_rate}")
    if options.get("window_size") not in _FULL_WINDOW:
        raise ValueError(
            f"flagos_flash_attn attends to all keys, and window_size is {options['window_size']}"
        )
    for name in ("softcap", "alibi_slopes"):
        if options.get(name) not in (None, 0, 0.0):
            raise ValueError(f"flagos_flash_attn does not know {name}")


def _is_packed(q: Tensor, cu_seqlens: Tensor | None) -> bool:
    """Whether ``q`` packs several sequences. A batch of equal lengths has a dimension of its own instead."""
    return q.ndim == 3 and cu_seqlens is not None and cu_seqlens.numel() > 2


def _packed(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_kv: Tensor | None,
    mask: Tensor | None,
    scale: float | None,
    causal: bool,
) -> Tensor:
    """One call per sequence, into one [1, tokens, heads, dim]."""
    if cu_seqlens_q is None or cu_seqlens_kv is None or len(cu_seqlens_q) != len(cu_seqlens_kv):
        raise ValueError("packed sequences need cu_seqlens_q and cu_seqlens_kv of one length")
    if mask is not None:
        raise ValueError("flagos_flash_attn takes no mask for packed sequences")
    output = q.new_empty(1, *q.shape[:-1], v.shape[-1])
    bounds_q, bounds_kv = cu_seqlens_q.tolist(), cu_seqlens_kv.tolist()
    if bounds_q[-1] != q.shape[0] or bounds_kv[-1] != k.shape[0]:
        raise ValueError(
            f"cu_seqlens end at {bounds_q[-1]} queries and {bounds_kv[-1]} keys, but there are "
            f"{q.shape[0]} and {k.shape[0]}"
        )
    for index in range(len(bounds_q) - 1):
        queries = slice(bounds_q[index], bounds_q[index + 1])
        keys = slice(bounds_kv[index], bounds_kv[index + 1])
        output[:, queries] = operators.attention(
            q[queries].unsqueeze(0), k[keys].unsqueeze(0), v[keys].unsqueeze(0), None, scale, causal
        )
    return output
