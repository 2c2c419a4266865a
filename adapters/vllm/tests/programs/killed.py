"""A replica that dies while the others compute: ``killed.py FOLDER OPTIONS``."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from typing import Any

import psutil
import serving
import tiny


def worker(replica: int) -> psutil.Process:
    """The process that computes for a replica."""
    found = [
        process
        for process in psutil.Process().children(recursive=True)
        if f"Worker_DP{replica}" in " ".join(process.cmdline())
    ]
    if len(found) != 1:
        raise RuntimeError(f"replica {replica} has {len(found)} workers, and not one")
    return found[0]


async def main(folder: str, further: dict[str, Any]) -> dict[str, Any]:
    """What requests of both replicas end with, how long after the death, and which processes stay."""
    from vllm import SamplingParams
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.v1.engine.async_llm import AsyncLLM

    given = AsyncEngineArgs(
        folder,
        dtype="float32",
        enforce_eager=True,
        max_model_len=256,
        max_num_batched_tokens=64,
        kv_cache_memory_bytes=64 << 20,
        **further,
    )
    engine = AsyncLLM.from_engine_args(given)
    options = SamplingParams(temperature=0.0, max_tokens=150, ignore_eos=True)
    begun = asyncio.Event()

    async def ends_with(name: str, prompt: list[int]) -> str:
        try:
            async for _ in engine.generate({"prompt_token_ids": prompt}, options, name):
                begun.set()
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        return "tokens"

    async def kill() -> float:
        await begun.wait()
        worker(1).kill()
        return time.monotonic()

    ours = [
        process
        for process in psutil.Process().children(recursive=True)
        if "resource_tracker" not in " ".join(process.cmdline())  # which ends with this process
    ]
    requests: list[Any] = [ends_with(str(n), tiny.prompts()[1]) for n in range(4)]
    *ended, killed = await asyncio.gather(*requests, kill())
    seconds = time.monotonic() - killed
    engine.shutdown()
    _, alive = psutil.wait_procs(ours, timeout=60)
    return {
        "ended": ended,
        "seconds": seconds,
        "alive": [" ".join(one.cmdline()) for one in alive],
    }


if __name__ == "__main__":
    with tempfile.TemporaryFile("w+") as file:  # of what all processes print
        own = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            found = asyncio.run(main(sys.argv[1], json.loads(sys.argv[2])))
        finally:
            os.dup2(own, 1)
            file.seek(0)
            said = file.read()
            sys.stderr.write(said)
    serving.report(**found, said=said)
