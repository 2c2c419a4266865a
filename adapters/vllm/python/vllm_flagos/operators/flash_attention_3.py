"""FlashAttention 3 through vLLM's own library, ``_vllm_fa3_C``: Hopper alone."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from flagos import _core
from flagos_serving.declaration import capability, decline, decline_others, device_type

_IGNORED = (
    "seq_threshold_3D",
    "num_par_softmax_segments",
    "softmax_segm_output",
    "softmax_segm_max",
    "softmax_segm_expsum",
    "use_td",
    "mm_prefix_clamp_sliding_window",
    "kv_quant_mode",
    "chunk_lookback",
)


_DTYPES = (torch.float16, torch.bfloat16, torch.float8_e4m3fn)


@cache
def missing() -> str | None:
    """Why FlashAttention 3 cannot serve in this process; None when it can. Opens no device, and imports no vLLM."""
    if device_type() != "cuda":
        return f"FlashAttention 3 is for CUDA, and vendor {_core.vendor()} serves flagos here"
    vllm = find_spec("vllm")
    if vllm is None or not vllm.submodule_search_locations:
        return "vLLM is not installed (no module vllm)"
    from pathlib import Path

    folder = Path(next(iter(vllm.submodule_search_locations))) / "vllm_flash_attn"
    if not list(folder.glob("_vllm_fa3_C*.so")):
        return "this vLLM was built without it (no vllm_flash_attn/_vllm_fa3_C*.so)"
    found = capability()
    if found is None or found[0] != 9:
        return f"it is for devices of capability 9, and this one has {found and found[0]}"
    return None


def _decline_sizes(q: Tensor, v: Tensor) -> None:
    """Declines sizes of heads for which the library raises RuntimeError, or has no kernel."""
    size, of_values = q.shape[-1], v.shape[-1]
    # Of 8 bits it takes up to 256 values for keys of 64, and computes the first 64 alone.
    step, widest = (16, 64) if q.element_size() == 1 else (8, 512)
    if size > 256 or size % step or of_values % step:
        raise decline(
            f"FlashAttention 3 takes heads of at most 256, in steps of {step}, not of {size} and {of_values}"
        )
    wide = 128 < size <= 192 and 96 < of_values <= 128
    if size != of_values and not wide and not (size <= 64 and of_values <= widest):
        raise decline(
            f"FlashAttention 3 has no kernel for keys of {size} and values of {of_values}"
        )


@cache
def _forward() -> Any:
    import_module("vllm.vllm_flash_attn._vllm_fa3_C")
    return import_module("vllm.vllm_flash_attn.flash_attn_interface").flash_attn_varlen_func


def paged_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    cu_seqlens_q: Tensor,
    max_seqlen_q: int,
    seqused_k: Tensor,
    max_seqlen_k: int,
    softmax_scale: float,
    causal: bool | Tensor,
    window_size: tuple[int, int],
    block_table: Tensor,
    softcap: float,
    q_descale: Tensor | None = None,
    k_descale: Tensor | None = None,
    v_descale: Tensor | None = None,
    sinks: Tensor | None = None,
    chunk_lookback: int = -1,
    **others: Any,
) -> None:
    """See `flagos_serving.references.attention`."""
    decline_others("FlashAttention 3", others, _IGNORED)
    if q.dtype not in _DTYPES or k.dtype != q.dtype:
        raise decline(
            f"FlashAttention 3 takes float16, bfloat16 and float8_e4m3fn throughout, not {q.dtype} over {k.dtype}"
        )
    _decline_sizes(q, v)
    scales: dict[str, Tensor] = {}
    if q.element_size() == 1:
        if q_descale is None or k_descale is None or v_descale is None:
            raise decline("FlashAttention 3 takes values of 8 bits with their scales")
        scales = {
            "q_descale": q_descale.expand(k_descale.shape),
            "k_descale": k_descale,
            "v_descale": v_descale,
        }
    if not isinstance(causal, bool) or chunk_lookback >= 0:
        raise decline("FlashAttention 3 takes one `causal` for all sequences, and no chunks")
    _forward()(
        q=q,
        k=k,
        v=v,
        out=out,
        max_seqlen_q=max_seqlen_q,
        cu_seqlens_q=cu_seqlens_q,
        max_seqlen_k=max_seqlen_k,
        seqused_k=seqused_k,
        softmax_scale=softmax_scale,
        causal=causal,
        window_size=list(window_size),
        block_table=block_table,
        softcap=softcap,
        fa_version=3,
        s_aux=sinks,
        **scales,
    )


def expanded_attention(*given: Any) -> Tensor:
    """See `flagos_serving.references.latent`."""
    return expanded_attention_to_merge(*given)[0]


def expanded_attention_to_merge(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_starts: Tensor,
    k_starts: Tensor,
    most_queries: int,
    most_keys: int,
    scale: float,
    causal: bool,
) -> tuple[Tensor, Tensor]:
    """See `flagos_serving.references.latent`."""
    if q.dtype not in (torch.float16, torch.bfloat16):
        raise decline(f"FlashAttention 3 takes float16 and bfloat16 here, not {q.dtype}")
    _decline_sizes(q, v)
    out, sums = _forward()(
        q=q,
        k=k,
        v=v,
        max_seqlen_q=most_queries,
        cu_seqlens_q=q_starts,
        max_seqlen_k=most_keys,
        cu_seqlens_k=k_starts,
        softmax_scale=scale,
        causal=causal,
        return_softmax_lse=True,
        fa_version=3,
    )
    return out, sums
