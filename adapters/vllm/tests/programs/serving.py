"""vLLM in a program of the tests, and what the plan served."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")  # counters of this process


def llm(folder: str, **options: Any) -> Any:
    """A model of the tests under vLLM, in float32 and eager, in steps of at most 64 tokens."""
    from vllm import LLM

    given = {
        "skip_tokenizer_init": True,
        "dtype": "float32",
        "max_model_len": 256,
        "max_num_batched_tokens": 64,
        "kv_cache_memory_bytes": 64 << 20,
        "enforce_eager": True,
        **options,
    }
    return LLM(folder, **given)


def tokens(model: Any, prompts: list[list[int]], new: int = 40, **options: Any) -> list[list[int]]:
    """Greedy tokens of each prompt."""
    from vllm import SamplingParams

    lora = options.pop("lora_request", None)
    given = {"temperature": 0.0, "max_tokens": new, "ignore_eos": True, "detokenize": False}
    outputs = model.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(**{**given, **options}),
        lora_request=lora,
        use_tqdm=False,
    )
    return [list(output.outputs[0].token_ids) for output in outputs]


def report(**found: Any) -> None:
    """Prints a line for the test, with the counters of all operators that are vLLM's."""
    import flagos

    counted = flagos.counters()
    found["calls"] = {op: n["calls"] for op, n in counted.items() if not op.startswith("aten::")}
    found["fallbacks"] = {op: n["fallbacks"] for op, n in counted.items() if n["fallbacks"]}
    print("REPORT " + json.dumps(found))
