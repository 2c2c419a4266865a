"""FlagGems' kernels at the sizes of models: one that loses the device, and models trained by verified kernels.

    python -m tests.gpu.recorded crash    # FlagGems' layer_norm_backward on 8 x 256 x 768, routed, in a child process
    python -m tests.gpu.recorded train [--policy verified] [--only NAME] [--seconds S]

`train` trains BERT-base (8 x 256, bf16 autocast), ViT-base (16 x 224 x 224, fp16 autocast), a perceptron and an LSTM,
each in a process of its own, with FLAGOS_FLAGGEMS as said and with native kernels. It prints the losses, the time of
every step, and which operators FlagGems declined how often. It ends with 1 if a process died or was late, or a loss is
another by more than one percent.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from typing import Any

CRASH = """
import torch, torch_fl
x = torch.randn(8, 256, 768, device="flagos", requires_grad=True)
norm = torch.nn.LayerNorm(768).to("flagos")
with torch_fl.route({"native_layer_norm_backward": "flaggems"}):
    norm(x).sum().backward()
    torch.accelerator.synchronize()
    for _ in range(64):  # what is next to the gradient of the weight
        torch.randn(1 << 16, device="flagos").sum().item()
print("no error; gradient of the weight", norm.weight.grad.abs().max().item())
"""
STEPS = 6


def crash() -> int:
    """What becomes of a process that runs the kernel."""
    done = subprocess.run(
        [sys.executable, "-c", CRASH], capture_output=True, text=True, timeout=300
    )
    said = (done.stdout + done.stderr).strip().splitlines()
    print(f"status {done.returncode}: {said[-1] if said else 'nothing'}")
    return 0


def one(name: str) -> None:
    """Train a model on flagos, and print what came of it as JSON."""
    import torch
    import transformers
    from torch import nn
    from torch.nn import functional

    import torch_fl

    torch.manual_seed(0)
    device = torch.device("flagos")
    autocast: torch.dtype | None = None
    if name == "bert":
        autocast = torch.bfloat16
        model: Any = transformers.BertForMaskedLM(transformers.BertConfig())
        ids = torch.randint(0, 30_000, (8, 256)).to(device)
        loss = lambda: model(input_ids=ids, labels=ids).loss  # noqa: E731
    elif name == "vit":
        autocast = torch.float16
        model = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
        images, labels = (
            torch.randn(16, 3, 224, 224).to(device),
            torch.randint(0, 1000, (16,)).to(device),
        )
        loss = lambda: model(pixel_values=images, labels=labels).loss  # noqa: E731
    elif name == "mlp":
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
        x, y = torch.randn(128, 784).to(device), torch.randint(0, 10, (128,)).to(device)
        loss = lambda: functional.cross_entropy(model(x), y)  # noqa: E731
    else:
        model = nn.LSTM(512, 512, 2, batch_first=True)
        x = torch.randn(32, 128, 512).to(device)
        loss = lambda: model(x)[0].square().mean()  # noqa: E731
    # Dropout draws its own numbers by other kernels. cuDNN differentiates an LSTM in training alone; this one has none.
    model.to(device).train(name == "lstm")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    losses, seconds = [], []
    for _ in range(STEPS):
        began = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("flagos", autocast or torch.bfloat16, enabled=autocast is not None):
            value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.item())
        seconds.append(round(time.perf_counter() - began, 4))
    counters = {op: one for op, one in torch_fl.counters().items() if one["fallbacks"]}
    declined = {op: one["fallbacks"] for op, one in counters.items()}
    winners = torch_fl.plan_summary()
    print(
        json.dumps(
            {"losses": losses, "seconds": seconds, "declined": declined, "plan": str(winners)[:200]}
        )
    )


def train(policy: str, only: str, limit: float) -> int:
    """Each model with the policy and without FlagGems."""
    failures = 0
    for name in [only] if only else ["mlp", "lstm", "bert", "vit"]:
        found = {}
        for used in ("off", policy):
            environment = {**os.environ, "FLAGOS_FLAGGEMS": used}
            command = [
                sys.executable,
                "-W",
                "ignore",
                "-m",
                "tests.gpu.recorded",
                "one",
                "--only",
                name,
            ]
            try:
                done = subprocess.run(
                    command, env=environment, capture_output=True, text=True, timeout=limit
                )
            except subprocess.TimeoutExpired:
                print(f"{name} {used}: longer than {limit:.0f} s")
                continue
            if done.returncode != 0:
                print(f"{name} {used}: status {done.returncode}: {done.stderr.strip()[-400:]}")
                continue
            found[used] = json.loads(done.stdout.splitlines()[-1])
            told = found[used]
            print(
                f"{name} {used}: losses {told['losses']}, steps {told['seconds']} s, declined {told['declined']}"
            )
        pairs = (
            zip(*(one["losses"] for one in found.values()), strict=True) if len(found) == 2 else ()
        )
        alike = len(found) == 2 and all(abs(a - b) <= 0.01 * abs(a) for a, b in pairs)
        failures += not alike
        print(
            f"{name}: {'as without FlagGems' if alike else 'NOT as without FlagGems'}", flush=True
        )
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["crash", "train", "one"])
    parser.add_argument("--policy", default="verified")
    parser.add_argument("--only", default="", choices=["", "bert", "vit", "mlp", "lstm"])
    parser.add_argument(
        "--seconds", type=float, default=140, help="for one process (default: %(default)s)"
    )
    options = parser.parse_args()
    if options.what == "crash":
        return crash()
    if options.what == "one":
        one(options.only)
        return 0
    return train(options.policy, options.only, options.seconds)


if __name__ == "__main__":
    sys.exit(main())
