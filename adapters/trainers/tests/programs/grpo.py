"""TRL's GRPO with transformers' generation, on the device that accelerate chooses: ``grpo.py FOLDER [resume]``.

A tiny Llama learns to say words with an h. Prints the losses, rewards and the words that it generated, and with
``resume`` those of a run that went on from the checkpoint of the second of four steps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

WORDS = [
    "<pad>",
    "<eos>",
    "<unk>",
    *[
        "the",
        "pilot",
        "said",
        "that",
        "she",
        "wanted",
        "to",
        "see",
        "a",
        "harbour",
        "before",
        "ship",
        "came",
    ],
]
said: list[str] = []


def tokenizer() -> Any:
    """Whole words."""
    made = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=made,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
        padding_side="left",
    )


def reward(completions: list[str], **_: Any) -> list[float]:
    """How many words have an h."""
    said.extend(completions)
    return [float(sum("h" in word for word in text.split())) for text in completions]


def trainer(folder: Path) -> Any:
    """A new trainer, with the same weights whatever the device."""
    torch.manual_seed(5)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=1,
        bos_token_id=None,
    )
    arguments = GRPOConfig(
        output_dir=str(folder),
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=8,
        max_steps=4,
        save_steps=2,
        logging_steps=1,
        learning_rate=1e-2,
        report_to=[],
        bf16=False,
        gradient_checkpointing=False,
        disable_tqdm=True,
        seed=5,
    )
    return GRPOTrainer(
        LlamaForCausalLM(config),
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_dict(
            {"prompt": ["the pilot said", "she wanted", "before the ship"] * 8}
        ),
        processing_class=tokenizer(),
    )


def main() -> None:
    """Trains four steps."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    made = trainer(folder)
    resumed = "resume" in sys.argv
    made.train(resume_from_checkpoint=str(folder / "checkpoint-2") if resumed else None)
    logged = [entry for entry in made.state.log_history if "loss" in entry]
    if made.is_world_process_zero():
        found = {
            "case": "resume" if resumed else "grpo",
            "device": str(made.accelerator.device),
            "steps": [
                [float(entry[name]).hex() for name in ("loss", "reward", "grad_norm")]
                for entry in logged
            ],
            "said": said,
        }
        print("RESULT " + json.dumps(found), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
