"""The attention backend: operators of the plan over SGLang's pool of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from sglang.srt import server_args
from sglang.srt.layers.attention.attention_registry import (
    ATTENTION_BACKENDS,
    register_attention_backend,
)
from sglang.srt.layers.attention.base_attn_backend import AttentionBackend
from sglang.srt.layers.radix_attention import AttentionType
from sglang.srt.mem_cache.memory_pool import KVWriteLoc
from torch import Tensor

from sglang_flagos import operators
from sglang_flagos.engine import triton_missing
from sglang_flagos.operators import wheel
from sglang_flagos.operators.attention import by_flash_attention

NAME = "flagos"


@dataclass(frozen=True)
class _Batch:
    """What all layers of a forward pass share."""

    cu_seqlens_q: Tensor  # int32 [requests + 1]
    most_queries: int
    seqused_k: Tensor  # int32 [requests]
    most_keys: int
    table: Tensor  # int32 [requests, most keys]: the place of each token


class FlagosAttention(AttentionBackend):
    """Every layer writes its keys and values, and calls the operator with blocks of one token."""

    def __init__(self, runner: Any) -> None:
        super().__init__()
        self.req_to_token_pool = runner.req_to_token_pool
        self.token_to_kv_pool = runner.token_to_kv_pool
        self._batch: _Batch | None = None
        self._of_graphs: _Batch | None = None

    def init_forward_metadata(self, forward_batch: Any) -> None:
        """The lengths are on the CPU with the batch, so that nothing here waits for the device."""
        lengths = forward_batch.seq_lens
        on_cpu = forward_batch.seq_lens_cpu
        most = int((lengths if on_cpu is None else on_cpu).max()) if len(lengths) else 0
        mode = forward_batch.forward_mode
        if mode.is_extend() and forward_batch.extend_seq_lens is not None:
            counts = forward_batch.extend_seq_lens
            of_cpu = forward_batch.extend_seq_lens_cpu
            most_queries = max(of_cpu if of_cpu is not None else counts.tolist(), default=0)
        else:
            counts, most_queries = torch.ones_like(lengths), 1
        starts = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
        starts[1:] = counts.cumsum(0)
        table = self.req_to_token_pool.req_to_token[forward_batch.req_pool_indices, :most]
        self._batch = _Batch(starts, int(most_queries), lengths.int(), most, table)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        """Makes what graphs read in each step: their requests have one query each, and keys up to the whole context."""
        places = self.req_to_token_pool.req_to_token
        starts = torch.arange(max_bs + 1, dtype=torch.int32, device=places.device)
        lengths = starts.new_zeros(max_bs)
        table = places.new_zeros(max_bs, places.shape[1])
        self._of_graphs = _Batch(starts, 1, lengths, places.shape[1], table)

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        """Fills it for the next step; a graph that is captured gets the part of its requests."""
        whole, count = self._of_graphs, forward_batch.batch_size
        assert whole is not None
        on_cpu = forward_batch.seq_lens_cpu
        most = whole.most_keys if on_cpu is None else int(on_cpu[:count].max())
        rows = forward_batch.req_pool_indices[:count]
        whole.seqused_k[:count].copy_(forward_batch.seq_lens[:count])
        whole.table[:count, :most].copy_(self.req_to_token_pool.req_to_token[rows, :most])
        if in_capture:
            self._batch = _Batch(
                *(whole.cu_seqlens_q[: count + 1], 1, whole.seqused_k[:count]),
                *(whole.most_keys, whole.table[:count]),
            )

    def get_cuda_graph_seq_len_fill_value(self) -> int:
        """The length of requests that fill a batch up."""
        return 1

    def support_triton(self) -> bool:
        """Whether SGLang's Triton kernels prepare batches."""
        return triton_missing() is None

    def forward_extend(
        self,
        q: Tensor,
        k: Tensor | None,
        v: Tensor | None,
        layer: Any,
        forward_batch: Any,
        save_kv_cache: bool = True,
        **more: Any,
    ) -> Tensor:
        """Attention of queries [tokens, heads · dim] to all of their requests' keys."""
        asked = sorted(name for name, value in more.items() if value is not None)
        if layer.is_cross_attention:
            asked.append("cross attention")
        if asked:
            raise NotImplementedError(
                f"attention on flagos does not know {', '.join(asked)}: take another model"
            )
        batch, pool = self._batch, self.token_to_kv_pool
        assert batch is not None
        scales = (layer.k_scale, layer.v_scale) if pool.dtype.itemsize == 1 else (None, None)
        if save_kv_cache and k is not None and v is not None:
            place = KVWriteLoc(forward_batch.out_cache_loc, None)
            pool.set_kv_buffer(layer, place, k, v, *scales)
        q = q.view(-1, layer.tp_q_head_num, layer.qk_head_dim)
        out = q.new_empty(q.shape[0], layer.tp_q_head_num, layer.v_head_dim)
        causal = layer.attn_type == AttentionType.DECODER
        window = layer.sliding_window_size
        operators.paged_attention(
            q=q,
            k=pool.get_key_buffer(layer.layer_id)[:, None],
            v=pool.get_value_buffer(layer.layer_id)[:, None],
            out=out,
            cu_seqlens_q=batch.cu_seqlens_q,
            max_seqlen_q=batch.most_queries,
            seqused_k=batch.seqused_k,
            max_seqlen_k=batch.most_keys,
            softmax_scale=layer.scaling,
            causal=causal,
            window_size=(window, 0) if causal and window is not None and window > -1 else (-1, -1),
            block_table=batch.table,
            softcap=layer.logit_cap,
            q_descale=None,
            k_descale=_each(scales[0], batch, layer),
            v_descale=_each(scales[1], batch, layer),
        )
        return out.view(-1, layer.tp_q_head_num * layer.v_head_dim)

    forward_decode = forward_extend


def _each(scale: Any, batch: _Batch, layer: Any) -> Tensor | None:
    """One scale for all as float32 [requests, KV heads]."""
    if scale is None:
        return None
    one = torch.as_tensor(scale, dtype=torch.float32, device=batch.table.device)
    return one.expand(len(batch.seqused_k), layer.tp_k_head_num)


def backend(runner: Any) -> AttentionBackend:
    """The backend for a model: SGLang's metadata for Triton where its kernels make that, else a table of places.

    FlashAttention 3 takes a table, too, and is preferred unless the plan has another kernel for ``paged_attention``, or
    its library cannot be loaded.
    """
    model, cache = runner.model_config, runner.token_to_kv_pool.dtype
    if triton_missing() is not None or (
        by_flash_attention(model, cache) and wheel.attention_loads()
    ):
        return FlagosAttention(runner)
    from sglang_flagos.triton_attention import FlagosTritonAttention

    return FlagosTritonAttention(runner)


def register() -> None:
    """Makes the backend known to SGLang by the name ``flagos``. Idempotent."""
    if NAME not in ATTENTION_BACKENDS:
        register_attention_backend(NAME)(backend)
    if NAME not in server_args.ATTENTION_BACKEND_CHOICES:
        server_args.add_attention_backend_choices([NAME])
