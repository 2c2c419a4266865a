"""FlagGems where it is faster (`FLAGOS_FLAGGEMS=auto`) beside torch's own CUDA: eight models of no other benchmark.

    python -m tests.bench.gpu.auto [--models NAMES] [--policy auto|verified|off] [--rounds N] [--warm SECONDS]
                                   [--json FILE]

A step of each model takes turns on cuda and on flagos in one process, after both ran until FlagGems' kernels are
compiled and replayed. The ratio is flagos' time over cuda's of each round: least, median, greatest. What a step yields
must agree with cuda's. `slower` and `rare` are the calls of a step that the policy leaves to native kernels: of classes
that were not measured to be faster, and of signatures that do not come often. The tables of speeds and of verdicts are
those that the plan reads; with `--policy off` every kernel is native, which shows what flagos itself costs.

Ends with 1 if a model failed or yields something else. `--device-pair cpu,flagos --small` tries it without a chip.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.bench.gpu.workloads import Step, trained
from tests.bench.timing import Measured, geometric_mean, measure, seconds_of

TOLERANCE = 0.02
"""Relative, of what the first step yields: bfloat16 has 8 bits, and sums are added in another order."""
_WARM = 60  # steps, after which every signature that a step has has come often
_LONG = 0.15  # seconds of steps in a turn, about


def _written(model: Any, device: str, prompt: Any, tokens: int) -> Step:
    """The logits of the prompt's last token stand for what is written."""
    import torch

    model = model.to(torch.bfloat16).to(device).eval()
    ids = prompt.to(device)

    def step() -> Any:
        with torch.no_grad():
            written = model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                output_logits=True,
                return_dict_in_generate=True,
            )
        return written.logits[0].float().abs().mean()

    return step


def _inferred(model: Any, device: str, inputs: Any) -> Step:
    import torch

    model = model.to(torch.bfloat16).to(device).eval()
    given = inputs.to(torch.bfloat16).to(device)

    def step() -> Any:
        with torch.no_grad():
            return model(given)[0].float().abs().mean()

    return step


def albert_train(device: str, small: bool) -> Step:
    """ALBERT-base, one layer twelve times, 8 x 128, bf16 autocast."""
    import torch
    from transformers import AlbertConfig, AlbertForMaskedLM

    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
    }
    config = AlbertConfig(
        vocab_size=30_000, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
        **(sizes if small else {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12}),
    )  # fmt: skip
    model = AlbertForMaskedLM(config)
    ids = torch.randint(0, 30_000, (2, 16) if small else (8, 128)).to(device)
    return trained(model, device, lambda: model(input_ids=ids, labels=ids).loss, True)


def opt_write(device: str, small: bool) -> Step:
    """OPT-125m in bfloat16: a prompt of 2 x 64, and 24 tokens after it."""
    import torch
    from transformers import OPTConfig, OPTForCausalLM

    config = OPTConfig(
        num_hidden_layers=2 if small else 12, bos_token_id=None, eos_token_id=None, pad_token_id=0
    )
    prompt = torch.randint(10, 50_000, (2, 8 if small else 64))
    return _written(OPTForCausalLM(config), device, prompt, 4 if small else 24)


def gemma_write(device: str, small: bool) -> Step:
    """Gemma 2 of width 768 with 12 layers in bfloat16: a prompt of 1 x 96, and 24 tokens after it."""
    import torch
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=32_000, hidden_size=768, intermediate_size=3072, num_hidden_layers=2 if small else 12,
        num_attention_heads=8, num_key_value_heads=4, head_dim=96, query_pre_attn_scalar=96,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip
    prompt = torch.randint(0, 32_000, (1, 8 if small else 96))
    return _written(Gemma2ForCausalLM(config), device, prompt, 4 if small else 24)


def swin_infer(device: str, small: bool) -> Step:
    """Swin-T in bfloat16, 8 x 224 x 224."""
    import torch
    from transformers import SwinConfig, SwinForImageClassification

    config = SwinConfig(depths=[1, 1, 1, 1]) if small else SwinConfig()
    images = torch.randn(1 if small else 8, 3, 224, 224)
    return _inferred(SwinForImageClassification(config), device, images)


def convnext_train(device: str, small: bool) -> Step:
    """ConvNeXt-T, 8 x 224 x 224, bf16 autocast."""
    import torch
    from transformers import ConvNextConfig, ConvNextForImageClassification

    config = ConvNextConfig(depths=[1, 1, 1, 1]) if small else ConvNextConfig()
    config.drop_path_rate = 0.0
    model = ConvNextForImageClassification(config)
    images = torch.randn(1 if small else 8, 3, 224, 224).to(device)
    labels = torch.zeros(len(images), dtype=torch.long).to(device)
    return trained(model, device, lambda: model(images, labels=labels).loss, True)


def wav2vec_infer(device: str, small: bool) -> Step:
    """wav2vec 2.0 base in bfloat16, two seconds of 4 voices."""
    import torch
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(num_hidden_layers=2 if small else 12)
    return _inferred(Wav2Vec2Model(config), device, torch.randn(4, 4_000 if small else 32_000))


def dlrm_train(device: str, small: bool) -> Step:
    """A recommender: 12 tables of width 32, their products and a perceptron, batches of 512, float32."""
    import torch
    from torch import nn

    class Recommender(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(12))
            self.bottom = nn.Sequential(nn.Linear(13, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(32 + 78, 128), nn.ReLU(), nn.Linear(128, 1))
            self.register_buffer("pairs", torch.tril_indices(13, 13, -1), persistent=False)

        def forward(self, numbers: Any, kinds: Any) -> Any:
            dense = self.bottom(numbers)
            looked = [table(kinds[:, i]) for i, table in enumerate(self.tables)]
            every = torch.stack([dense, *looked], 1)
            products = (every @ every.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
            return self.top(torch.cat([dense, products], 1)).squeeze(1)

    model = Recommender()
    batch = 32 if small else 512
    numbers, kinds = (
        torch.randn(batch, 13).to(device),
        torch.randint(0, 1000, (batch, 12)).to(device),
    )
    clicks = torch.randint(0, 2, (batch,)).float().to(device)

    def loss() -> Any:
        return nn.functional.binary_cross_entropy_with_logits(model(numbers, kinds), clicks)

    return trained(model, device, loss, False, foreach=False)


def vae_train(device: str, small: bool) -> Step:
    """A variational autoencoder of perceptrons of width 400, batches of 128, float32; AdamW by parameter."""
    import torch
    from torch import nn

    del small
    encoder = nn.Sequential(nn.Linear(784, 400), nn.SiLU(), nn.Linear(400, 40))
    decoder = nn.Sequential(nn.Linear(20, 400), nn.SiLU(), nn.Linear(400, 784), nn.Sigmoid())
    model = nn.ModuleList([encoder, decoder])
    images, noise = torch.rand(128, 784).to(device), torch.randn(128, 20).to(device)

    def loss() -> Any:
        mean, spread = encoder(images).chunk(2, -1)
        made = decoder(mean + noise * torch.exp(0.5 * spread))
        divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum()
        return (nn.functional.mse_loss(made, images, reduction="sum") + divergence) / len(images)

    return trained(model, device, loss, False, foreach=False)


MODELS: dict[str, Callable[[str, bool], Step]] = {
    "albert-train": albert_train,
    "opt-write": opt_write,
    "gemma-write": gemma_write,
    "swin-infer": swin_infer,
    "convnext-train": convnext_train,
    "wav2vec-infer": wav2vec_infer,
    "dlrm-train": dlrm_train,
    "vae-train": vae_train,
}


def _counted() -> dict[str, int]:
    """What FlagGems' operators did so far: calls replayed, and calls left to native kernels."""
    from torch_fl import replay

    known = replay.statistics().values()
    return {
        "replays": sum(one.replays for one in known),
        "slower": sum(one.slower for one in known),
        "rare": sum(one.rare for one in known),
    }


def compare(
    name: str, pair: tuple[str, str], small: bool, rounds: int, warm: float
) -> dict[str, Any]:
    """The times of a model on both devices, and what the policy did in a step."""
    import torch

    steps: dict[str, Step] = {}
    first: dict[str, float] = {}
    for device in pair:
        torch.manual_seed(0)
        steps[device] = MODELS[name](device, small)
        first[device] = float(steps[device]())

    def waited(device: str) -> Callable[[], object]:
        module = torch.get_device_module(device)
        return getattr(module, "synchronize", lambda: None)

    for device, most in zip(pair, (10, _WARM), strict=True):
        until, count = time.monotonic() + warm, 1
        while count < 4 or (time.monotonic() < until and count < most):
            steps[device]()
            waited(device)()
            count += 1
    before = _counted()
    one = seconds_of(steps[pair[1]], waited(pair[1]))
    of_a_step = {what: count - before[what] for what, count in _counted().items()}
    in_a_turn = max(1, round(_LONG / one))

    def turn(device: str) -> Callable[[], float]:
        def run() -> float:
            def work() -> None:
                for _ in range(in_a_turn):
                    steps[device]()

            return seconds_of(work, waited(device)) / in_a_turn

        return run

    seconds: Measured = measure({device: turn(device) for device in pair}, rounds, collected=False)
    apart = abs(first[pair[0]] - first[pair[1]]) / abs(first[pair[0]])
    return {
        **seconds.to_json(),
        "ratio": asdict(seconds.ratio(pair[1])),
        "of a step": of_a_step,
        "first step apart by": apart,
        "good": apart <= TOLERANCE,
    }


def _show(name: str, found: dict[str, Any]) -> None:
    if "failed" in found:
        print(f"{name:15} FAILED\n{found['failed']}", flush=True)
        return
    ratio, counts = found["ratio"], found["of a step"]
    spreads = list(found["sides"].values())
    print(
        f"{name:15} {ratio['least']:.3f} / {ratio['median']:.3f} / {ratio['greatest']:.3f}   "
        f"ms {1e3 * spreads[1]['median']:8.2f} over {1e3 * spreads[0]['median']:8.2f}   "
        f"of a step {counts['replays']} replayed, {counts['slower']} slower, {counts['rare']} rare   "
        f"{'ok' if found['good'] else 'WRONG'} ({found['first step apart by']:.1e})",
        flush=True,
    )


def main() -> int:
    """Measure the models, print a line for each, and the geometric mean."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--models", default=",".join(MODELS), help="default: %(default)s")
    parser.add_argument("--policy", default="auto", help="default: %(default)s")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm", type=float, default=8.0, help="seconds of steps before, a device")
    parser.add_argument("--device-pair", default="cuda,flagos", help="the reference, then flagos")
    parser.add_argument("--small", action="store_true", help="models for a machine without a chip")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    names = options.models.split(",")
    if unknown := set(names) - MODELS.keys():
        parser.error(f"no model {', '.join(unknown)}; there are {', '.join(MODELS)}")
    os.environ["FLAGOS_FLAGGEMS"] = options.policy  # before torch_fl is imported
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    first, second = options.device_pair.split(",")
    import torch

    results: dict[str, Any] = {}
    print(
        f"FLAGOS_FLAGGEMS={options.policy}, time on {second} over {first}: least / median / greatest"
    )
    for name in names:
        try:
            results[name] = compare(
                name, (first, second), options.small, options.rounds, options.warm
            )
        except Exception:
            results[name] = {"failed": traceback.format_exc(), "good": False}
        _show(name, results[name])
        gc.collect()
        torch.accelerator.empty_cache()
        if options.json:
            options.json.write_text(
                json.dumps({"policy": options.policy, "models": results}, indent=1)
            )
    ratios = [found["ratio"]["median"] for found in results.values() if "ratio" in found]
    if ratios:
        print(f"geometric mean {geometric_mean(ratios):.3f}, greatest {max(ratios):.3f}")
    return 0 if all(found["good"] for found in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
