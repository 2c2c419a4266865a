"""Kernel packs on a GPU: what they launch, how soon a program starts with one, and `auto` beside torch's own CUDA.

    python -m tests.gpu.packs smoke                         # a pack made here, and the same made as without a GPU
    python -m tests.gpu.packs start [--models NAMES] [--cold]
    python -m tests.gpu.packs auto [--models NAMES] [--rounds N] [--steps N] [--tune N]

    smoke  packs a program's calls on this chip and with FLAGOS_VENDOR=host; both must launch the same. The program then
           runs from each, and every replay is compared with FlagGems' own call, bit for bit.
    start  seconds from the start of the process to the end of the first training step, on flagos: native, verified with
           a pack, verified without (with Triton's cache of before, and with an empty one: --cold).
    auto   the time of a step on cuda and on flagos with FLAGOS_FLAGGEMS=auto and a pack made for the model, in turns.

What a part writes goes to --folder, where records and packs of before are taken as they are. Ends with 1 if something
failed. `--json FILE` keeps the numbers.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

Step = Callable[[], Any]

LOSS_TOLERANCE = 0.02  # relative, of the last of a few steps
VERDICTS = "verdicts.NVIDIA_H200.flaggems-5.0.2.json"

# ---- the models, without dropout


def _trained(model: Any, device: str, loss: Callable[[], Any], autocast: bool = True) -> Step:
    import torch

    model.to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def step() -> Any:
        with torch.autocast(device, torch.bfloat16, enabled=autocast):
            value = loss()
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
        return value.detach()

    return step


def _language(name: str, device: str, batch: int, length: int, config: Any, **more: Any) -> Step:
    import torch
    import transformers

    model = getattr(transformers, name)(config)
    ids = torch.randint(0, config.vocab_size, (batch, length)).to(device)
    return _trained(model, device, lambda: model(input_ids=ids, labels=ids, **more).loss)


def bert_train(device: str) -> Step:
    """BERT-base, 8 x 256, bf16 autocast."""
    from transformers import BertConfig

    config = BertConfig(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    return _language("BertForMaskedLM", device, 8, 256, config)


def _qwen3() -> Any:
    from transformers import Qwen3Config

    return Qwen3Config(
        hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, vocab_size=151_936, tie_word_embeddings=True, layer_types=None,
        bos_token_id=None, eos_token_id=None, pad_token_id=None,
    )  # fmt: skip


def qwen3_train(device: str) -> Step:
    """Qwen3-0.6B, 4 x 512, bf16 autocast."""
    return _language("Qwen3ForCausalLM", device, 4, 512, _qwen3(), use_cache=False)


def gpt2_train(device: str) -> Step:
    """GPT-2, 8 x 512, bf16 autocast."""
    from transformers import GPT2Config

    config = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return _language("GPT2LMHeadModel", device, 8, 512, config, use_cache=False)


def llama_train(device: str) -> Step:
    """Llama of width 2048 with 8 layers, 2 x 1024, bf16 autocast."""
    from transformers import LlamaConfig

    config = LlamaConfig(hidden_size=2048, intermediate_size=5632, num_hidden_layers=8,
                         num_attention_heads=16)  # fmt: skip
    return _language("LlamaForCausalLM", device, 2, 1024, config, use_cache=False)


def t5_train(device: str) -> Step:
    """T5-base, 8 x 256 to 64, bf16 autocast."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(d_model=768, d_ff=3072, num_layers=12, num_decoder_layers=12, num_heads=12,
                      dropout_rate=0.0, decoder_start_token_id=0)  # fmt: skip
    model = T5ForConditionalGeneration(config)
    ids, labels = (torch.randint(0, 30_000, shape).to(device) for shape in ((8, 256), (8, 64)))
    return _trained(model, device, lambda: model(input_ids=ids, labels=labels).loss)


def vit_train(device: str) -> Step:
    """ViT-base, 16 x 224 x 224, bf16 autocast."""
    import torch
    from transformers import ViTConfig, ViTForImageClassification

    model = ViTForImageClassification(ViTConfig(num_labels=1000))
    images, labels = (
        torch.randn(16, 3, 224, 224).to(device),
        torch.randint(0, 1000, (16,)).to(device),
    )
    return _trained(model, device, lambda: model(pixel_values=images, labels=labels).loss)


def mlp_train(device: str) -> Step:
    """A perceptron, batches of 128, float32."""
    import torch
    from torch import nn
    from torch.nn import functional

    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    x, y = torch.randn(128, 784).to(device), torch.randint(0, 10, (128,)).to(device)
    return _trained(model, device, lambda: functional.cross_entropy(model(x), y), autocast=False)


def _written(model: Any, device: str, batch: int, prompt: int, tokens: int) -> Step:
    import torch

    model.to(device, torch.bfloat16).eval()
    ids = torch.randint(0, model.config.vocab_size, (batch, prompt)).to(device)

    def step() -> Any:
        with torch.no_grad():
            known = model(input_ids=ids, use_cache=True)
            for _ in range(tokens):
                chosen = known.logits[:, -1].argmax(-1, keepdim=True)
                known = model(
                    input_ids=chosen, past_key_values=known.past_key_values, use_cache=True
                )
        return known.logits.float().abs().mean()

    return step


def qwen3_write(device: str) -> Step:
    """Qwen3-0.6B in bfloat16: a prompt of 4 x 128, and 32 tokens after it."""
    from transformers import Qwen3ForCausalLM

    return _written(Qwen3ForCausalLM(_qwen3()), device, 4, 128, 32)


def gpt2_write(device: str) -> Step:
    """GPT-2 in bfloat16: a prompt of 4 x 128, and 32 tokens after it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    return _written(GPT2LMHeadModel(GPT2Config()), device, 4, 128, 32)


def smoke(device: str) -> Step:
    """Operators of many kinds, in float32 and bfloat16, with a gradient."""
    import torch
    from torch.nn import functional

    parts = []
    for dtype in (torch.float32, torch.bfloat16):
        x, y = (torch.randn(64, 512).to(device, dtype) for _ in range(2))
        w = torch.randn(512, 256).to(device, dtype).requires_grad_()
        ids = torch.arange(64).to(device) % 7
        parts.append((x, y, w, ids))

    def step() -> Any:
        total = torch.zeros((), device=device)
        for x, y, w, ids in parts:
            hidden = functional.gelu(x @ w) + functional.silu(x[:, :256] * y[:, 256:])
            hidden = torch.where(hidden > 0, hidden, hidden * 0.5) + w[ids]
            hidden = torch.softmax(hidden, -1) * functional.embedding(ids, w)
            hidden = torch.cat([hidden, hidden.tanh()], -1).sum(-1) + torch.rsqrt(
                hidden.abs() + 1
            ).mean(-1)
            total = total + hidden.float().sum()
        total.backward()
        made = total.detach() + sum(w.grad.float().abs().mean() for _, _, w, _ in parts)
        for _, _, w, _ in parts:
            w.grad = None
        return made

    return step


MODELS: dict[str, Callable[[str], Step]] = {
    one.__name__.replace("_", "-"): one
    for one in (
        qwen3_train, bert_train, gpt2_train, llama_train, t5_train, vit_train, mlp_train, qwen3_write, gpt2_write,
        smoke,
    )
}  # fmt: skip
COMPARED = [name for name in MODELS if name != "smoke"]

# ---- one process


def one(name: str, device: str, steps: int) -> None:
    """Run a model, and print what came of it as JSON."""
    began = float(os.environ.get("BEGAN", time.time()))
    import torch

    torch.manual_seed(0)
    step = MODELS[name](device)
    seconds, losses = [], []
    first = 0.0
    for _ in range(steps):
        start = time.perf_counter()
        loss = step()
        torch.get_device_module(device).synchronize()
        seconds.append(time.perf_counter() - start)
        losses.append(loss)
        first = first or time.time() - began
    told: dict[str, Any] = {
        "first": first,
        "seconds": seconds,
        "losses": [x.item() for x in losses],
    }
    if device == "flagos":
        import torch_fl
        from torch_fl import replay

        known = replay.statistics().values()
        counted = torch_fl.counters()
        told |= {
            "packed_replays": sum(one.packed_replays for one in known),
            "packed_signatures": sum(one.packed for one in known),
            "calls": sum(one["calls"] for one in counted.values()),
            "fallbacks": {op: one["fallbacks"] for op, one in counted.items() if one["fallbacks"]},
            "declined": {
                op: list(one.reasons)[:2] for op, one in replay.statistics().items() if one.reasons
            },
            "imported": [each for each in ("flag_gems", "triton") if each in sys.modules],
        }
    print(json.dumps(told))


class Failed(Exception):
    """A process ended otherwise than it should."""


def _command(*words: str, limit: float = 560, **variables: str) -> str:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "BEGAN": str(time.time()), **variables}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=limit)
    if done.returncode != 0:
        raise Failed(
            f"{' '.join(words[-6:])}: status {done.returncode}: {done.stderr.strip()[-1500:]}"
        )
    return done.stdout


def run(name: str, device: str, steps: int, **variables: str) -> dict[str, Any]:
    """What came of a model in a process of its own."""
    program = [sys.executable, "-m", "tests.gpu.packs", "one", "--models", name]
    out = _command(*program, "--device", device, "--steps", str(steps), **variables)
    return dict(json.loads(out.splitlines()[-1]))


def pack(name: str, folder: Path, *options: str, host: bool = False) -> Path:
    """A pack of what a model calls; taken as it is if there is one."""
    record, made = folder / f"{name}.rec", folder / f"{name}{'.host' if host else ''}.flagospack"
    flagos = [sys.executable, "-m", "flagos"]
    program = [sys.executable, "-m", "tests.gpu.packs", "one", "--models", name, "--steps", "2"]
    if not record.exists():
        _command(*flagos, "record", "-o", str(record), "--", *program, FLAGOS_FLAGGEMS="off")
    if not made.exists():
        began = time.monotonic()
        found = find_spec("torch_fl")
        assert found is not None and found.origin is not None, "torch_fl is installed"
        table = Path(found.origin).with_name("verdicts") / VERDICTS
        variables = {"FLAGOS_VENDOR": "host"} if host else {}
        out = _command(
            *flagos, "pack", "--record", str(record), "-o", str(made), "--verdicts", str(table), "--json", *options,
            **variables,
        )  # fmt: skip
        told = json.loads(out)
        print(
            f"  {made.name}: {told['calls']} calls of {told['operators']} operators, {told['kernels']} kernels, "
            f"{told['nbytes'] / 1e6:.2f} MB, made in {time.monotonic() - began:.0f} s",
            flush=True,
        )
    return made


# ---- the parts


def _launches(path: Path) -> dict[tuple[str, tuple[int, ...]], Any]:
    """The recordings of a pack, with the programs in place of their numbers."""
    import hashlib

    from torch_fl.flaggems import pack_file

    read = pack_file.read(path)
    found = {}
    for overload in read.header["operators"]:
        for call in read.calls(overload):
            words: list[Any] = list(call.recording)
            for at in call.kernels:
                words[at] = hashlib.sha256(read.image(words[at])).hexdigest()[:12]
            found[overload, call.signature] = words
    return found


def check_smoke(folder: Path) -> int:
    """See `smoke` above."""
    import torch

    chip = torch.cuda.get_device_name(0)
    here = pack("smoke", folder, "--tune", "1", "--no-times")
    there = pack("smoke", folder, "--for", chip, host=True)
    ours, theirs = _launches(here), _launches(there)
    both = ours.keys() & theirs.keys()
    differing = [key for key in both if ours[key] != theirs[key]]
    print(
        f"{chip}: {len(ours)} calls packed here, {len(theirs)} as without a GPU, {len(both)} in both, of which "
        f"{len(differing)} differ"
    )
    for overload, signature in differing[:5]:
        key = (overload, signature)
        print(f"  {overload}: {ours[key]}\n      and {theirs[key]}")
    failures = len(differing) + len(ours.keys() ^ theirs.keys())
    for path in (here, there):
        served = {"FLAGOS_PACK": str(path), "FLAGOS_FLAGGEMS": "verified"}
        told = run("smoke", "flagos", 4, **served)
        print(
            f"{path.name}: {told['packed_replays']} of {told['calls']} calls replayed from the pack, imported "
            f"{told['imported']}, fallbacks {told['fallbacks']}, refused {told['declined']}"
        )
        failures += told["packed_replays"] == 0 or "flag_gems" in told["imported"]
        compared = run("smoke", "flagos", 4, **served, FLAGOS_VERIFY_REPLAYS="1")
        same = compared["losses"] == told["losses"]
        print(f"{path.name}: every replay as FlagGems' own call, bit for bit; same results: {same}")
        failures += not same
    altered = folder / "altered.flagospack"
    altered.write_bytes(here.read_bytes()[:-1] + b"x")
    try:
        run("smoke", "flagos", 1, FLAGOS_PACK=str(altered), FLAGOS_FLAGGEMS="verified")
    except Failed as error:
        failures += "truncated or altered" not in str(error)
    else:
        failures += 1
        print("an altered pack is NOT refused")
    return failures


def check_start(folder: Path, names: list[str], cold: bool, numbers: dict[str, Any]) -> int:
    """See `start` above."""
    failures = 0
    for name in names:
        made = pack(name, folder, "--tune", "1", "--no-times")
        run(name, "flagos", 1, FLAGOS_FLAGGEMS="off")  # files are read into memory
        sides: dict[str, dict[str, str]] = {
            "native": {"FLAGOS_FLAGGEMS": "off"},
            "verified with a pack": {"FLAGOS_FLAGGEMS": "verified", "FLAGOS_PACK": str(made)},
            "verified without": {"FLAGOS_FLAGGEMS": "verified"},
        }
        if cold:
            empty = tempfile.mkdtemp()
            sides["verified without, and without Triton's cache"] = {
                "FLAGOS_FLAGGEMS": "verified",
                "TRITON_CACHE_DIR": f"{empty}/triton",
                "FLAGGEMS_CACHE_DIR": f"{empty}/flaggems",
            }
        told = {}
        for side, variables in sides.items():
            turns = [
                run(name, "flagos", 3, **variables) for _ in range(1 if "cache" in side else 3)
            ]
            seconds = [turn["first"] for turn in turns]
            told[side] = {"first": statistics.median(seconds), "turns": seconds, **turns[-1]}
            print(
                f"{name}, {side}: {statistics.median(seconds):.2f} s to the first step "
                f"({', '.join(f'{s:.2f}' for s in seconds)}), loss {turns[-1]['losses'][-1]:.4f}, "
                f"{turns[-1]['packed_replays']} replays, {sum(turns[-1]['fallbacks'].values())} fallbacks",
                flush=True,
            )
        more = told["verified with a pack"]["first"] - told["native"]["first"]
        print(
            f"{name}: with the pack {more:+.2f} s ({made.stat().st_size / 1e6:.2f} MB)", flush=True
        )
        failures += more > 1.0 or told["verified with a pack"]["packed_replays"] == 0
        numbers[name] = told | {"pack_bytes": made.stat().st_size}
    return failures


def check_auto(
    folder: Path, names: list[str], rounds: int, steps: int, tune: int, numbers: dict[str, Any]
) -> int:
    """See `auto` above."""
    failures, ratios = 0, []
    for name in names:
        try:
            made = pack(name, folder, "--tune", str(tune))
            served = {"FLAGOS_FLAGGEMS": "auto", "FLAGOS_PACK": str(made)}
            turns: dict[str, list[dict[str, Any]]] = {"cuda": [], "flagos": []}
            for _ in range(rounds):
                turns["cuda"].append(run(name, "cuda", steps))
                turns["flagos"].append(run(name, "flagos", steps, **served))
        except (Failed, subprocess.TimeoutExpired) as error:
            failures += 1
            print(f"{name}: FAILED: {error}", flush=True)
            continue
        times = {
            side: statistics.median(s for turn in some for s in turn["seconds"][3:])
            for side, some in turns.items()
        }
        ratio = times["cuda"] / times["flagos"]
        ratios.append(ratio)
        last = [some[-1]["losses"][-1] for some in turns.values()]
        off = abs(last[0] - last[1]) / abs(last[0])
        packed = turns["flagos"][-1]["packed_replays"] / max(1, turns["flagos"][-1]["calls"])
        print(
            f"{name}: cuda {1e3 * times['cuda']:.2f} ms, flagos auto {1e3 * times['flagos']:.2f} ms, "
            f"{ratio:.3f} times as fast; {packed:.0%} of the calls from the pack; loss off by {off:.2e}",
            flush=True,
        )
        failures += off > LOSS_TOLERANCE
        numbers[name] = {"ratio": ratio, "times": times, "loss_off": off, "packed": packed}
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"geometric mean of {len(ratios)} models: {mean:.3f}, the least {min(ratios):.3f}")
        numbers["geometric mean"] = mean
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("part", choices=["smoke", "start", "auto", "one"])
    add("--models", default="", help=f"of {', '.join(MODELS)}")
    add("--folder", type=Path, help="for records and packs (default: a temporary one)")
    add("--cold", action="store_true", help="also without anything that was compiled before")
    add("--rounds", type=int, default=2, help="default: %(default)s")
    add("--steps", type=int, default=20, help="default: %(default)s")
    add("--tune", type=int, default=1, help="as of `flagos pack` (default: %(default)s)")
    add("--device", default="flagos")
    add("--json", type=Path)
    options = parser.parse_args()
    names = [name for name in options.models.split(",") if name]
    if unknown := set(names) - MODELS.keys():
        parser.error(
            f"{', '.join(sorted(unknown))}: no model of that name; there are {', '.join(MODELS)}"
        )
    if options.part == "one":
        one(names[0], options.device, options.steps)
        return 0
    folder = options.folder or Path(tempfile.mkdtemp(prefix="packs-"))
    folder.mkdir(parents=True, exist_ok=True)
    numbers: dict[str, Any] = {}
    try:
        if options.part == "smoke":
            failures = check_smoke(folder)
        elif options.part == "start":
            failures = check_start(
                folder, names or ["qwen3-train", "bert-train"], options.cold, numbers
            )
        else:
            failures = check_auto(
                folder, names or COMPARED, options.rounds, options.steps, options.tune, numbers
            )
    except Failed as error:
        print(f"FAILED: {error}")
        failures = 1
    if options.json is not None:
        options.json.write_text(json.dumps(numbers, indent=1))
    print("FAILED" if failures else "OK")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
