"""Two ranks on two nodes: ``nodes.py FOLDER OPTIONS PORT``.

This process is the first node, with the engine; it starts the second one, which has workers alone. Each is a machine of
one device to vLLM.
"""

from __future__ import annotations

import json
import subprocess
import sys

import serving
import tiny

if __name__ == "__main__":
    folder, options, port = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
    # fmt: off
    command = [
        sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", folder, "--headless",
        "--nnodes", "2", "--node-rank", "1", "--master-addr", "127.0.0.1", "--master-port", port,
        "--tensor-parallel-size", "2", "--dtype", "float32", "--max-model-len", "256",
        "--max-num-batched-tokens", "64", "--kv-cache-memory-bytes", str(64 << 20), "--enforce-eager",
        "--skip-tokenizer-init",
    ]
    # fmt: on
    with subprocess.Popen(command, stdout=sys.stderr) as process:
        try:
            model = serving.llm(
                folder,
                nnodes=2,
                node_rank=0,
                master_addr="127.0.0.1",
                master_port=int(port),
                tensor_parallel_size=2,
                **options,
            )
            serving.report(model, tokens=serving.tokens(model, tiny.prompts()))
            sys.stdout.flush()
        finally:
            process.terminate()
            process.wait(30)
