"""Replicas that share experts, one process each as in vLLM's own example: ``replicas.py FOLDER OPTIONS PORT [killed]``.

This process starts them. The second one has one prompt of one token, so that it is done first, and takes part in the
steps of the first one with batches of nothing; with ``killed`` it dies after ten steps.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import Any

import serving
import tiny

REPLICAS = 2
NEW = (40, 12)  # tokens of each replica


def replica(folder: str, options: dict[str, Any], rank: int, dies: bool) -> None:
    """Reports the tokens of one replica, or dies."""
    prompts = tiny.prompts()[:1] if rank else tiny.prompts()[1:]
    model = serving.llm(folder, **options)
    if dies:
        from vllm import SamplingParams

        model.llm_engine.add_request(
            "0", {"prompt_token_ids": prompts[0]}, SamplingParams(max_tokens=40, detokenize=False)
        )
        for _ in range(10):
            model.llm_engine.has_unfinished_requests()  # asks the other replica, too
            model.llm_engine.step()
        os.kill(os.getpid(), signal.SIGKILL)
    serving.report(model, tokens=serving.tokens(model, prompts, new=NEW[rank]))


def main(folder: str, options: str, port: str, how: str = "whole") -> None:
    """Starts the replicas, and reports what they report, or how they ended and what the first one said."""
    variables = {
        "VLLM_DP_SIZE": str(REPLICAS),
        "VLLM_DP_MASTER_IP": "127.0.0.1",
        "VLLM_DP_MASTER_PORT": port,
    }
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, folder, options, how],
            env={**os.environ, **variables, "VLLM_DP_RANK": str(n), "VLLM_DP_RANK_LOCAL": str(n)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for n in range(REPLICAS)
    ]
    printed = [process.communicate()[0] for process in processes]
    ended = [process.returncode for process in processes]
    if how == "killed":
        result: dict[str, Any] = {"ended": ended, "said": printed[0][-5000:], "fallbacks": {}}
    else:
        found = [
            json.loads(line.removeprefix("REPORT "))
            for text in printed
            for line in text.splitlines()
            if line.startswith("REPORT ")
        ]
        if any(ended) or len(found) != REPLICAS:
            sys.exit(f"the replicas ended with {ended}\n" + "\n".join(printed))
        result = {name: [one[name] for one in found] for name in ("tokens", "calls")}
        result["fallbacks"] = {op: n for one in found for op, n in one["fallbacks"].items()}
    print("REPORT " + json.dumps(result))


if __name__ == "__main__":
    if "VLLM_DP_RANK" in os.environ:
        folder, options, how = sys.argv[1:]
        rank = int(os.environ["VLLM_DP_RANK"])
        replica(folder, json.loads(options), rank, dies=how == "killed" and rank == 1)
    else:
        main(*sys.argv[1:])
