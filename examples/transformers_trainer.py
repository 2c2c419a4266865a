"""Trains a tiny Qwen3 with the Trainer of transformers, on flagos.

python examples/transformers_trainer.py

accelerate, which places the model for the Trainer, has a variable by which a program chooses a device:
`ACCELERATE_TORCH_DEVICE`. Here it is set before transformers is imported, which is early enough. The
weights are random and the text is made here: nothing is downloaded.
"""

import os
import sys
import tempfile

os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "flagos")

import torch

try:
    from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments, set_seed
    from transformers.trainer_callback import PrinterCallback
except ImportError as missing:
    sys.exit(f"this example needs transformers and accelerate: pip install {missing.name}")

TEXT = b"the sea is wide, the sea is deep, and nobody has counted its waves. "
LENGTH = 32


def tiny() -> Qwen3ForCausalLM:
    """Qwen3 with two layers, which reads and writes bytes."""
    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=256, hidden_size=64, intermediate_size=128, num_hidden_layers=2, head_dim=16,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
        )
    )  # fmt: skip


def main() -> None:
    set_seed(0)
    model = tiny()
    text = torch.tensor(list(TEXT * 8))
    rows = [text[i : i + LENGTH] for i in range(0, len(text) - LENGTH, 4)]
    arguments = TrainingArguments(
        output_dir=tempfile.mkdtemp(), max_steps=60, per_device_train_batch_size=8, learning_rate=3e-3,
        logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True,
    )  # fmt: skip
    trainer = Trainer(
        model=model,
        args=arguments,
        train_dataset=[{"input_ids": row, "labels": row} for row in rows],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    print(f"trained on {next(model.parameters()).device}")
    for entry in trainer.state.log_history:
        if "loss" in entry:
            print(f"step {entry['step']:2d}  loss {float(entry['loss']):.2f}")

    prompt = torch.tensor([list(b"the sea is ")], device=model.device)
    written = model.generate(prompt, max_new_tokens=28, do_sample=False, pad_token_id=0)
    print(bytes(written[0].tolist()).decode())


if __name__ == "__main__":
    main()
