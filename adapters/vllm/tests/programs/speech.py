"""Whisper, an encoder-decoder of random weights, over a second of noise: ``speech.py FOLDER``, which it writes."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import serving
import tiny
import torch

START = [3, 7, 9]
NEW = 10


def model() -> Any:
    """Two layers each way, on the CPU in float32."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    torch.manual_seed(0)
    layers = {
        f"{side}_{name}": number
        for side in ("encoder", "decoder")
        for name, number in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 128))
    }
    config = WhisperConfig(
        vocab_size=tiny.VOCABULARY,
        d_model=64,
        max_target_positions=64,
        init_std=0.3,  # large enough for tokens that differ
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        decoder_start_token_id=START[0],
        **layers,
    )
    return WhisperForConditionalGeneration(config).float().eval()


def greedy(made: Any, features: torch.Tensor) -> list[int]:
    """What transformers generates."""
    tokens = torch.tensor([START])
    with torch.no_grad():
        for _ in range(NEW):
            logits = made(input_features=features, decoder_input_ids=tokens).logits
            tokens = torch.cat((tokens, logits[:, -1:].argmax(-1)), dim=1)
    return tokens[0, len(START) :].tolist()


if __name__ == "__main__":
    from transformers import WhisperFeatureExtractor
    from vllm import SamplingParams

    folder = str(Path(sys.argv[1]) / "speech")
    made, extractor = model(), WhisperFeatureExtractor()
    made.save_pretrained(folder)
    tiny.tokenizer().save_pretrained(folder)
    extractor.save_pretrained(folder)
    sound = 0.1 * np.random.default_rng(0).standard_normal(16000).astype(np.float32)
    features = extractor(sound, sampling_rate=16000, return_tensors="pt").input_features
    llm = serving.llm(
        folder,
        skip_tokenizer_init=False,
        max_model_len=64,
        max_num_batched_tokens=2048,
        max_num_seqs=4,
    )
    prompt = {
        "encoder_prompt": {"prompt": "", "multi_modal_data": {"audio": (sound, 16000)}},
        "decoder_prompt": {"prompt_token_ids": START},
    }
    options = SamplingParams(temperature=0.0, max_tokens=NEW, ignore_eos=True, detokenize=False)
    (output,) = llm.generate([prompt], options, use_tqdm=False)
    serving.report(llm, tokens=list(output.outputs[0].token_ids), expected=greedy(made, features))
