"""Prompts of one engine in another: ``transfer.py FOLDER OPTIONS PORT``.

A process of its own computes prompts and stays; then this one, without a prefix cache, generates from what it gets of
them, and from a prompt that the other has not computed. ``PRODUCER_DEVICE`` is the device of the other process where
both cannot have one: NCCL joins no two ranks on one GPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import serving
import tiny

NEW = 12


def engine(folder: str, options: dict[str, Any], role: str, port: int) -> Any:
    transfer = {
        "kv_connector": "FlagosConnector",
        "kv_role": role,
        "kv_port": port,
        "kv_connector_extra_config": {"kv_ip": "127.0.0.1"},
    }
    return serving.llm(
        folder, kv_transfer_config=transfer, enable_prefix_caching=role == "kv_producer", **options
    )


if __name__ == "__main__":
    folder, options, port = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    known = tiny.prompts()  # the last is computed in several steps
    other = known.pop(3)
    if len(sys.argv) > 4:
        producer = engine(folder, options, "kv_producer", port)
        first = serving.tokens(producer, known, 1)
        print("COMPUTED " + json.dumps(first), flush=True)
        sys.stdin.read()  # until the other one is done
        sys.exit()
    environment = dict(os.environ)
    if "PRODUCER_DEVICE" in environment:
        environment["CUDA_VISIBLE_DEVICES"] = environment["PRODUCER_DEVICE"]
    with subprocess.Popen(
        [sys.executable, *sys.argv, "kv_producer"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        line = next((line for line in process.stdout if line.startswith("COMPUTED ")), None)
        assert line is not None, "the producer ended"
        consumer = engine(folder, options, "kv_consumer", port)
        from vllm import SamplingParams

        outputs = consumer.generate(
            [{"prompt_token_ids": prompt} for prompt in (*known, other)],
            SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True, detokenize=False),
            use_tqdm=False,
        )
        serving.report(
            consumer,
            first=json.loads(line.removeprefix("COMPUTED ")),
            tokens=[list(each.outputs[0].token_ids) for each in outputs],
            given=[each.num_cached_tokens for each in outputs],
        )
        sys.stdout.flush()
        process.stdin.close()
