"""A rank of `tests.bench.gpu.trainers`: DeepSpeed's ZeRO 3 in bf16 with a Llama of transformers, on DS_ACCELERATOR."""

from __future__ import annotations

import faulthandler
import resource
import sys

import deepspeed
import torch
from deepspeed.accelerator import get_accelerator
from transformers import LlamaConfig, LlamaForCausalLM

from tests.bench.gpu.turns import Recorder


def main() -> None:
    """Trains, and prints what rank 0 found."""
    steps, limit, small = int(sys.argv[1]), int(sys.argv[2]), "--small" in sys.argv
    faulthandler.dump_traceback_later(limit, exit=True)
    accelerator = get_accelerator()
    deepspeed.init_distributed(dist_backend=accelerator.communication_backend_name())
    width, layers, length, words = (64, 2, 32, 128) if small else (2048, 12, 2048, 32000)
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
    recorder = Recorder(accelerator.synchronize)

    def step(ids: torch.Tensor) -> torch.Tensor:
        loss: torch.Tensor = engine(input_ids=ids, labels=ids).loss
        engine.backward(loss)
        engine.step()
        return loss

    for _ in range(steps):
        ids = torch.randint(0, words, (2, length), generator=generator).to(engine.device)
        recorder.step(lambda ids=ids: step(ids), float)  # type: ignore[misc]
    # The CPU has no allocator with a peak: there it is the process's.
    on_host = accelerator.device_name() == "cpu"
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    recorder.report(own if on_host else accelerator.max_memory_allocated())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
