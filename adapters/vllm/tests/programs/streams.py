"""Requests at the same time by the asynchronous engine, one of which is given up: ``streams.py FOLDER OPTIONS``."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import serving
import tiny


async def main(folder: str, further: dict[str, Any]) -> None:
    """Reports the tokens of each prompt twice, by their differences, and the first of one that was given up."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.async_llm import AsyncLLM

    given = {
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": 256,
        "max_num_batched_tokens": 64,
        "kv_cache_memory_bytes": 64 << 20,
        **further,
    }
    engine = AsyncLLM.from_engine_args(AsyncEngineArgs(folder, **given))
    options = SamplingParams(
        temperature=0.0, max_tokens=40, ignore_eos=True, output_kind=RequestOutputKind.DELTA
    )

    async def tokens(name: str, prompt: list[int], most: int = 40) -> list[int]:
        found: list[int] = []
        async for output in engine.generate({"prompt_token_ids": prompt}, options, name):
            found += output.outputs[0].token_ids
            if len(found) >= most:
                break
        return found

    prompts = tiny.prompts()
    requests: list[Any] = [tokens(str(n), prompts[n % 5]) for n in range(10)]
    *whole, begun = await asyncio.gather(*requests, tokens("given up", prompts[4], most=5))
    core = engine.engine_core  # whose own method returns what the first replica says

    async def of_the_ranks(method: str) -> list[Any]:
        return [
            rank
            for replica in core.core_engines
            for rank in await core._call_utility_async(
                "collective_rpc", method, None, (), {}, engine=replica
            )
        ]

    ranks = await of_the_ranks("flagos_counters")
    memory = [found["reserved"] for found in await of_the_ranks("flagos_memory")]
    engine.shutdown()
    fallbacks = [{op: n["fallbacks"] for op, n in r.items() if n["fallbacks"]} for r in ranks]
    serving.report(whole=whole, begun=begun, of_the_ranks=fallbacks, memory=memory)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
