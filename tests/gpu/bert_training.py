r"""Trains BERT-base in bfloat16 with every operator that FlagGems has on FlagGems: a program for `flagos bisect`.

    flagos bisect --timeout 300 --state bert -- python -m tests.gpu.bert_training
    PYTORCH_NO_CUDA_MEMORY_CACHING=1 flagos bisect --timeout 300 --state bert -- python -m tests.gpu.bert_training
    flagos bisect --compare native --rtol 0.02 --state bert-loss -- python -m tests.gpu.bert_training --steps 3
    flagos bisect --compare native --rtol 0.5 -- \
        python -m tests.gpu.bert_training --steps 1 --layers 2 --gradients --float32

Overloads that are known to be wrong are routed as well, so that a training step may end in an illegal memory access:
more surely where each tensor is an allocation of its own, as in the second line. The loss of each step is marked, with
`--gradients` those of the norms, too. `--small` is for machines without a chip; `--native` routes nothing.
"""

from __future__ import annotations

import argparse

import torch
from transformers import BertConfig, BertForMaskedLM

import torch_fl
from torch_fl.flaggems import implementations


def main() -> None:
    """Train, and print each loss."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--float32", action="store_true")
    parser.add_argument(
        "--gradients", action="store_true", help="mark the norms' gradients as well"
    )
    parser.add_argument("--small", action="store_true", help="two layers of 64, not twelve of 768")
    parser.add_argument("--native", action="store_true", help="route nothing to FlagGems")
    options = parser.parse_args()
    if not options.native:
        routed = torch_fl.enable_flaggems(
            include=[name for name in implementations.registered() if implementations.usable(name)]
        )
        print(f"{len(routed)} overloads routed to FlagGems", flush=True)
    torch.manual_seed(0)
    size = {"num_hidden_layers": options.layers}
    if options.small:
        size = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2}
        size |= {"intermediate_size": 128, "vocab_size": 512}
    # Without dropout, whose random numbers are FlagGems' own.
    config = BertConfig(**size, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    dtype = torch.float32 if options.float32 else torch.bfloat16
    model = BertForMaskedLM(config).to("flagos", dtype).train()
    norms = [one for name, one in model.named_parameters() if "LayerNorm" in name]
    tokens = torch.randint(0, config.vocab_size, (options.batch, options.length)).to("flagos")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step in range(options.steps):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        if options.gradients:
            torch.flagos.mark("gradients", [one.grad.float() for one in norms])
        optimizer.step()
        optimizer.zero_grad()
        torch.flagos.mark("loss", loss)
        print(f"step {step}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
