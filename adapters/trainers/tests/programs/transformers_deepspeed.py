"""transformers' Trainer with a DeepSpeed configuration, zero3.json in the folder that is the only argument."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch.utils.data import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments


class Words(Dataset[dict[str, torch.Tensor]]):
    """One sentence, many times."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.arange(16) % 7
        return {"input_ids": words, "labels": words}


def main() -> None:
    """Trains eight steps."""
    folder = Path(sys.argv[1])
    arguments = TrainingArguments(
        output_dir=str(folder / "out"),
        deepspeed=str(folder / "zero3.json"),
        per_device_train_batch_size=2,
        max_steps=8,
        logging_steps=1,
        learning_rate=1e-2,
        bf16=True,
        report_to=[],
        save_strategy="no",
    )
    torch.manual_seed(3)
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
    )
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=Words())
    trainer.train()
    if trainer.is_world_process_zero():
        logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        found = {
            "case": "trainer",
            "device": str(trainer.model_wrapped.device),
            "engine": type(trainer.model_wrapped).__name__,
            "first": logged[0],
            "loss": logged[-1],
        }
        print("RESULT " + json.dumps(found), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
