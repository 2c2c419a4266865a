"""What a graph of decoding reads of a batch, beside what the same batch has without graphs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import serving

HEADS, SIZE, PLACES, CONTEXT = 2, 16, 64, 24


def batch(lengths: list[int], rows: list[int], known: bool) -> Any:
    """A step of decoding of requests of these lengths, in these rows of the pool."""
    import torch

    given = torch.tensor(lengths)
    return SimpleNamespace(
        batch_size=len(lengths),
        seq_lens=given.to("flagos"),
        seq_lens_cpu=given if known else None,
        req_pool_indices=torch.tensor(rows).to("flagos"),
        forward_mode=SimpleNamespace(is_extend=lambda: False),
        extend_seq_lens=None,
    )


if __name__ == "__main__":
    import torch
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.srt.layers.radix_attention import AttentionType

    from sglang_flagos.attention import FlagosAttention

    torch.manual_seed(0)
    keys, values = (torch.randn(PLACES, HEADS, SIZE).to("flagos") for _ in range(2))
    places = torch.stack([torch.randperm(PLACES)[:CONTEXT] for _ in range(4)]).int().to("flagos")
    pool = SimpleNamespace(
        dtype=torch.float32, get_key_buffer=lambda _: keys, get_value_buffer=lambda _: values
    )
    runner = SimpleNamespace(
        req_to_token_pool=SimpleNamespace(req_to_token=places), token_to_kv_pool=pool
    )
    layer = SimpleNamespace(
        is_cross_attention=False,
        k_scale=None,
        v_scale=None,
        tp_q_head_num=HEADS,
        tp_k_head_num=HEADS,
        qk_head_dim=SIZE,
        v_head_dim=SIZE,
        attn_type=AttentionType.DECODER,
        sliding_window_size=-1,
        layer_id=0,
        scaling=0.25,
        logit_cap=0.0,
    )
    eager, graphs = FlagosAttention(runner), FlagosAttention(runner)
    graphs.init_cuda_graph_state(3, 3)
    steps = [batch([1, 1, 1], [0, 0, 0], True), batch([9, 24, 5], [2, 1, 3], True)]
    steps += [batch([1, 17, 2], [1, 3, 0], False), batch([3, 4, 1], [3, 0, 0], True)]
    graphs.init_forward_metadata_out_graph(steps[0], in_capture=True)
    differences = []
    for step in steps:
        query = torch.randn(3, HEADS * SIZE).to("flagos")
        eager.init_forward_metadata(step)
        graphs.init_forward_metadata_out_graph(step)
        one, two = (each.forward_decode(query, None, None, layer, step) for each in (eager, graphs))
        differences.append((one - two).abs().max().item())
    serving.report(differences=differences, moved=float((one - query).abs().max()))
