"""Serves a language model with vLLM on flagos, asks it, and compares the answer with transformers on the CPU.

python examples/serve_vllm.py

The model is a tiny Qwen3 of random weights that is made here, so that nothing is downloaded; its words are
numbers. With a model of your own this is `VLLM_PLUGINS=flagos vllm serve MODEL`.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from http.client import HTTPConnection
from importlib.util import find_spec
from pathlib import Path

import torch

if find_spec("vllm") is None:
    sys.exit("this example needs vLLM: docs/vllm.md says how 0.26.0 or 0.33.0 is installed")

from transformers import Qwen3Config, Qwen3ForCausalLM

COMMAND = "-m vllm.entrypoints.cli.main serve --host 127.0.0.1 --dtype float32 --enforce-eager"
LIMITS = "--skip-tokenizer-init --max-model-len 256 --kv-cache-memory-bytes 67108864"
JSON = {"Content-Type": "application/json"}
PROMPT = [9, 8, 7, 6]
NEW = 8


def make(folder: str) -> list[int]:
    """Writes the model, and returns the tokens that transformers continues the prompt with."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3, head_dim=32,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256, initializer_range=0.15,
        tie_word_embeddings=False, eos_token_id=None, bos_token_id=None,
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).eval()
    model.save_pretrained(folder)
    made = model.generate(torch.tensor([PROMPT]), max_new_tokens=NEW, do_sample=False)
    return list(made[0, len(PROMPT) :].tolist())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        expected = make(folder)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        command = [sys.executable, *COMMAND.split(), *LIMITS.split(), "--port", str(port), folder]
        environment = {"VLLM_HOST_IP": "127.0.0.1", **os.environ, "VLLM_PLUGINS": "flagos"}
        body = {"model": folder, "prompt": PROMPT, "max_tokens": NEW, "temperature": 0}
        question = json.dumps({**body, "return_token_ids": True})
        log, answer = Path(folder, "log"), None
        with log.open("w") as file:
            server = subprocess.Popen(command, env=environment, stdout=file, stderr=file)
        try:
            while answer is None and server.poll() is None:
                time.sleep(0.5)
                connection = HTTPConnection("127.0.0.1", port)
                with suppress(ConnectionRefusedError):  # it is loading the model
                    connection.request("POST", "/v1/completions", question, JSON)
                    answer = json.load(connection.getresponse())
        finally:
            server.terminate()
            server.wait(timeout=60)
        if answer is None:
            sys.exit(f"vLLM did not start:\n{log.read_text()}")
    tokens = answer["choices"][0]["token_ids"]
    print(f"the server answered {tokens}")
    print(f"transformers on the CPU: {'the same' if tokens == expected else expected}")


if __name__ == "__main__":
    main()
