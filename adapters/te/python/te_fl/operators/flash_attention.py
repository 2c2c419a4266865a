"""TransformerEngine-FL's attention module, through torch's scaled_dot_product_attention."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F

from flagos._core import UnsupportedError
from te_fl.operators.attention import scores_mask, to_bhsd
from te_fl.operators.attention_call import Call, formats


class FlashAttention(torch.nn.Module):
    """``softmax(scale·q·kᵀ)·v`` with masks, dropout in training, and gradients by autograd.

    FP8, ALiBi, paged keys and context parallelism are declined.
    """

    def __init__(
        self,
        softmax_scale: float,
        attention_dropout: float = 0.0,
        attention_dropout_ctx: Callable[[], Any] | None = None,
        attention_type: str = "self",
        layer_number: int | None = None,
        deterministic: bool = False,
    ) -> None:
        super().__init__()
        self.softmax_scale = softmax_scale
        self.attention_dropout = attention_dropout
        self.attention_dropout_ctx = attention_dropout_ctx or nullcontext
        self.attention_type = attention_type
        self.layer_number = 1 if layer_number is None else layer_number
        self.deterministic = deterministic

    @property
    def backend_name(self) -> str:
        """The name that TransformerEngine-FL logs."""
        return type(self).__name__

    def forward(
        self,
        query_layer: torch.Tensor,
        key_layer: torch.Tensor,
        value_layer: torch.Tensor,
        attention_mask: Any = None,
        qkv_layout: str = "sbh3d",
        cu_seqlens_q: torch.Tensor | None = None,
        cu_seqlens_kv: torch.Tensor | None = None,
        max_seqlen_q: int | None = None,
        max_seqlen_kv: int | None = None,
        attn_mask_type: str = "causal",
        window_size: tuple[int, int] | None = None,
        alibi_slopes: torch.Tensor | None = None,
        cp_group: Any = None,
        cp_global_ranks: Any = None,
        cp_stream: Any = None,
        cp_comm_type: str = "p2p",
        fp8: bool = False,
        fp8_meta: Any = None,
        quantizers: Any = None,
        inference_params: Any = None,
        flash_attention_backend: Any = None,
        fp8_output: bool = False,
        **further: Any,
    ) -> torch.Tensor:
        """The output with the last two dimensions flattened: (s, b, h·d) for sbhd.

        ``qkv_layout`` is the layout of q, k and v. A padding mask needs ``cu_seqlens_q`` and ``cu_seqlens_kv``.
        """
        for what, is_requested in {
            "FP8": fp8 or fp8_output,
            "ALiBi": alibi_slopes is not None,
            "paged keys": inference_params is not None,
            "context parallelism": _parallel(cp_group),
            "an arbitrary mask": attn_mask_type == "arbitrary",
        }.items():
            if is_requested:
                raise UnsupportedError(f"attention with {what} is not supported by te_fl")
        q_format, kv_format = formats(qkv_layout)
        mask = attn_mask_type.replace(",", "_").upper() + "_MASK"
        call = Call(
            q_format,
            kv_format,
            self.softmax_scale,
            mask,
            window_size if window_size is not None else (-1, -1),
            # Bottom right, as in flash-attn from 2.1 on: the last query sees every key.
            True,
            (cu_seqlens_q, cu_seqlens_kv),
            (None, None),
            None,
        )
        q = to_bhsd(query_layer, q_format)
        k, v = (to_bhsd(x, kv_format) for x in (key_layer, value_layer))
        dropout = self.attention_dropout if self.training else 0.0
        with self.attention_dropout_ctx():
            out = self.attend(call, q, k, v, dropout)
        heads = {"sbhd": (2, 0, 1, 3), "bshd": (0, 2, 1, 3)}
        if q_format == "thd":
            return out.squeeze(0).transpose(0, 1).flatten(-2)
        return out.permute(*heads[q_format]).flatten(-2)

    @staticmethod
    def attend(
        call: Call, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout: float
    ) -> torch.Tensor:
        """The output (b, h, queries, d): 0 for a query that may attend to no key."""
        allowed = scores_mask(call, q, k)
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=allowed,
            dropout_p=dropout,
            scale=call.scale,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return out if allowed is None else torch.where(allowed.any(-1, keepdim=True), out, 0.0)


def _parallel(group: Any) -> bool:
    if group is None:
        return False
    size = getattr(group, "size", None)
    return not callable(size) or size() > 1


def get_flash_attention_class() -> type[FlashAttention]:
    """The attention class that TransformerEngine-FL instantiates."""
    return FlashAttention
