"""Steps without requests, by which Triton compiles its kernels before the first request.

vLLM's own warm-up of its first model runner has no attention, and that of the second one has two batches. Kernels are
compiled anew for other numbers of tokens: those of experts by the table of their configurations, and all where a number
is 1 or a multiple of 16.
"""

from __future__ import annotations

from typing import Any

from vllm.config import CUDAGraphMode

# The keys of vLLM's tables of configurations for experts, the last for all that are larger.
SIZES = (
    *(1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512),
    *(1024, 1536, 2048, 3072, 4096),
)


def sizes(most: int) -> list[int]:
    """The numbers of tokens of the steps, the largest first, so that no later step needs more memory."""
    return sorted({min(size, most) for size in SIZES}, reverse=True)


def is_warmed_up(worker: Any) -> bool:
    """Whether steps without requests are known to be right: for models that generate, with attention alone."""
    model = worker.model_config
    others = model.is_hybrid or model.is_attention_free or model.is_encoder_decoder
    return not others and not worker.model_runner.is_pooling_model


def run(worker: Any) -> None:
    """Runs the steps: decoding ones, and ones in which half of the tokens are a prompt after a context."""
    runner, scheduler = worker.model_runner, worker.scheduler_config
    for tokens in sizes(scheduler.max_num_batched_tokens):
        if worker.use_v2_model_runner:
            runner._dummy_run(tokens, skip_eplb=True)
            continue
        given = {
            "cudagraph_runtime_mode": CUDAGraphMode.NONE,
            "force_attention": True,
            "skip_eplb": True,
            "num_active_loras": worker.lora_config.max_loras if worker.lora_config else 0,
        }
        runner._dummy_run(tokens, create_mixed_batch=tokens > 1, **given)
        if tokens <= scheduler.max_num_seqs and worker.speculative_config is None:
            runner._dummy_run(tokens, uniform_decode=True, **given)
