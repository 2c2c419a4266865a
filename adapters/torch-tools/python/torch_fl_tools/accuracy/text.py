"""`python -m torch_fl_tools.accuracy.text MODEL TEXT TOKENS DTYPE`: a causal model of transformers reads a text on
flagos.

It is the program of `flagos accuracy --model --text`.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

_WINDOW = 512  # tokens at a time


def main(folder: str, text: str, tokens: str, dtype: str) -> None:
    """Read the text window by window."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, local_files_only=True)
    model = model.eval().to("flagos")
    ids = tokenizer(Path(text).read_text(), return_tensors="pt")["input_ids"][:, : int(tokens)]
    if ids.shape[1] < 2:
        sys.exit(f"{text} has {ids.shape[1]} tokens: a text has at least two")
    longest = getattr(model.config, "max_position_embeddings", None) or _WINDOW
    with torch.no_grad():
        for window in ids.split(min(_WINDOW, longest), dim=1):
            model(input_ids=window.to("flagos"), use_cache=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
