"""TRL's GRPO on the device that accelerate chooses: ``grpo.py FOLDER [resume | vllm | asleep]``.

A tiny Llama learns to say words with an h. Prints the losses, rewards and the words that it generated; with ``resume``
those of a run that went on from the checkpoint of the second of four steps. With ``vllm`` vLLM generates in the same
process, and with ``asleep`` it sleeps while the trainer learns: weights and caches leave the device, and the trainer's
weights take their places. Then it also prints what vLLM and the trainer's model say of the same prompts at the end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import PartialState
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


def model_in(folder: Path) -> str:
    """A new model, with the same weights whatever the device, saved where vLLM reads its configuration."""
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
    LlamaForCausalLM(config).save_pretrained(folder / "model")
    tokenizer().save_pretrained(folder / "model")
    PartialState().wait_for_everyone()  # transformers has the first rank alone write
    return str(folder / "model")


def trainer(folder: Path, what: str) -> Any:
    """A new trainer."""
    vllm = {
        "use_vllm": True,
        "vllm_mode": "colocate",
        "vllm_enable_sleep_mode": what == "asleep",
        "vllm_gpu_memory_utilization": 0.02,
        "vllm_max_model_length": 64,
    }
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
        **(vllm if what in ("vllm", "asleep") else {}),
    )
    return GRPOTrainer(
        LlamaForCausalLM.from_pretrained(model_in(folder)),
        reward_funcs=reward,
        args=arguments,
        train_dataset=Dataset.from_dict(
            {"prompt": ["the pilot said", "she wanted", "before the ship"] * 8}
        ),
        processing_class=tokenizer(),
    )


def at_the_end(made: Any) -> dict[str, Any]:
    """What vLLM and the trainer's model say without chance, and the bytes on the device with vLLM awake and asleep."""
    from vllm import SamplingParams

    engine, device = made.vllm_generation.llm, torch.flagos
    prompts = [tokenizer()(text)["input_ids"] for text in ("the pilot said", "she wanted to")]
    made.vllm_generation.sync_weights()
    if made.args.vllm_enable_sleep_mode:
        engine.wake_up(tags=["kv_cache"])
    awake = device.memory_allocated()
    answers = engine.generate(
        [{"prompt_token_ids": prompt} for prompt in prompts],
        SamplingParams(temperature=0, max_tokens=8, ignore_eos=True),
        use_tqdm=False,
    )
    if made.args.vllm_enable_sleep_mode:
        engine.sleep(level=2)
    return {
        "vllm": [list(answer.outputs[0].token_ids) for answer in answers],
        "model": greedy(made.model.eval(), prompts),
        "before": greedy(LlamaForCausalLM.from_pretrained(made.model.name_or_path), prompts),
        "awake": awake,
        "after": device.memory_allocated(),
    }


def greedy(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    """What a model of transformers says without chance."""
    said = []
    for prompt in prompts:
        given = torch.tensor([prompt], device=model.device)
        whole = model.generate(given, do_sample=False, max_new_tokens=8, min_new_tokens=8)
        said.append(whole[0, len(prompt) :].tolist())
    return said


def main() -> None:
    """Trains four steps."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(1)
    what = sys.argv[2] if len(sys.argv) > 2 else "grpo"
    made = trainer(folder, what)
    resumed = what == "resume"
    made.train(resume_from_checkpoint=str(folder / "checkpoint-2") if resumed else None)
    logged = [entry for entry in made.state.log_history if "loss" in entry]
    if made.is_world_process_zero():
        found = {
            "case": what,
            "device": str(made.accelerator.device),
            "steps": [
                [float(entry[name]).hex() for name in ("loss", "reward", "grad_norm")]
                for entry in logged
            ],
            "said": said,
            **(at_the_end(made) if what in ("vllm", "asleep") else {}),
        }
        print("RESULT " + json.dumps(found), flush=True)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
