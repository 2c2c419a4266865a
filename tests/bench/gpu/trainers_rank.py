"""A rank of `tests.bench.gpu.trainers`: DeepSpeed's ZeRO 3 in bf16 with a Llama of transformers, on DS_ACCELERATOR."""

from __future__ import annotations

import json
import resource
import sys
import time
from statistics import median

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from transformers import LlamaConfig, LlamaForCausalLM

from tests.bench.gpu.trainers import WARM_UP


def main() -> None:
    """Trains, and prints what rank 0 found."""
    steps, small = int(sys.argv[1]), "--small" in sys.argv
    accelerator = get_accelerator()
    deepspeed.init_distributed(dist_backend=accelerator.communication_backend_name())
    width, layers, length, words = (64, 2, 32, 128) if small else (2048, 16, 2048, 32000)
    torch.manual_seed(3)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=words,
            hidden_size=width,
            intermediate_size=4 * width,
            num_hidden_layers=layers,
            num_attention_heads=width // (16 if small else 128),
            max_position_embeddings=length,
        )
    )
    configuration = {
        "train_micro_batch_size_per_gpu": 2,
        "bf16": {"enabled": True},
        "zero_allow_untested_optimizer": True,
        "zero_optimization": {"stage": 3, "overlap_comm": not small},
        # torch's Adam on both: DeepSpeed's own needs CUDA's compiler on cuda.
        "optimizer": {"type": "Adam", "params": {"lr": 1e-4, "torch_adam": True}},
    }
    engine, *_ = deepspeed.initialize(
        model=model, model_parameters=list(model.parameters()), config=configuration
    )
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    losses, seconds = [], []
    for _ in range(steps):
        ids = torch.randint(0, words, (2, length), generator=generator).to(engine.device)
        accelerator.synchronize()
        begun = time.perf_counter()
        loss = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        losses.append(float(loss))
        accelerator.synchronize()
        seconds.append(time.perf_counter() - begun)
    # The CPU has no allocator with a peak: there it is the process's.
    on_host = accelerator.device_name() == "cpu"
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    peak = own if on_host else accelerator.max_memory_allocated()
    if torch.distributed.get_rank() == 0:
        found = {"losses": losses, "seconds": median(seconds[WARM_UP:]), "peak": peak}
        print("RESULT " + json.dumps(found), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
