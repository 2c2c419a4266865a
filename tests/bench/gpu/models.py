"""The speed of a whole model: a Qwen3 of the size of the published 0.6B, on CUDA and on flagos.

    python -m tests.bench.gpu.models [--parts eager,compile,graph] [--json FILE] [--small]

    eager    greedy generation, and training steps with AdamW
    compile  the same under torch.compile: the decoding step with mode="reduce-overhead"
    graph    the decoding step recorded by hand and replayed

Both devices start from the same random weights and take turns in one process. A part has a process of
its own, so that one that fails loses nothing of the others. Exits with 1 when a part failed or the
devices did not compute the same.

On a machine without a chip `--device-pair cpu,flagos --small` runs what the host vendor has.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import Qwen3Config, Qwen3ForCausalLM, StaticCache

from tests.bench.timing import Measured, Spread, measure, seconds_of

SECONDS_OF_A_PART = 300


@dataclass(frozen=True)
class Size:
    """The model's shape, and how much is asked of it."""

    vocabulary: int = 151_936
    hidden: int = 1024
    intermediate: int = 3072
    layers: int = 28
    heads: int = 16
    key_value_heads: int = 8
    head_dim: int = 128
    prompt: int = 32
    new_tokens: int = 128
    batch: int = 4
    length: int = 512
    steps: int = 5  # of training, in a round


@dataclass(frozen=True)
class Pair:
    """The two devices, and whether flagos is given another model: then the checks must notice."""

    reference: str
    ours: str
    perturbed: bool = False

    def __iter__(self) -> Iterator[str]:
        yield from (self.reference, self.ours)

    def place(self, model: nn.Module, device: str) -> nn.Module:
        """A copy of `model` on `device`."""
        placed = copy.deepcopy(model).to(device)
        if self.perturbed and device == self.ours:
            *_, last_norm = placed.parameters()
            with torch.no_grad():
                last_norm.neg_()
        return placed


SMALL = Size(256, 64, 128, 2, 4, 2, 16, prompt=8, new_tokens=24, batch=2, length=32, steps=2)


def build(size: Size) -> nn.Module:
    """The model in bfloat16 on the CPU, from seed 0."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=size.vocabulary,
        hidden_size=size.hidden,
        intermediate_size=size.intermediate,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.key_value_heads,
        head_dim=size.head_dim,
        tie_word_embeddings=True,
        initializer_range=0.1,
        attn_implementation="sdpa",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() == 1:  # norms that are all ones write one token over and over
            nn.init.normal_(parameter)
    return model.to(torch.bfloat16)


def drawn(size: Size, *shape: int) -> Tensor:
    """Token numbers from seed 1."""
    return torch.randint(size.vocabulary, shape, generator=torch.Generator().manual_seed(1))


def timed(device: str, work: Callable[[], Any]) -> float:
    """Seconds of `work` until the device has finished it."""
    return seconds_of(work, torch.get_device_module(device).synchronize)


def per_second(tokens: int, seconds: Measured) -> dict[str, Spread]:
    """Tokens per second of each side."""
    return {
        side: Spread.of([tokens / spent for spent in samples])
        for side, samples in seconds.samples.items()
    }


@dataclass
class Comparison:
    """One workload on both devices: how fast, and whether it computed the same."""

    tokens_per_second: dict[str, Spread]
    ratio: Spread  # of times, round by round: over 1 means that flagos takes longer
    checks: dict[str, bool]
    notes: dict[str, Any]

    @classmethod
    def of(
        cls,
        sides: dict[str, Callable[[], Any]],
        tokens: int,
        rounds: int,
        checks: Callable[[], dict[str, bool]],
        warmup: int = 1,
    ) -> Comparison:
        """Measures `rounds` rounds of each side, then asks for the checks."""
        _, ours = sides
        seconds = measure(
            {device: lambda d=device, w=work: timed(d, w) for device, work in sides.items()},
            rounds,
            warmup,
        )
        return cls(per_second(tokens, seconds), seconds.ratio(ours), checks(), {})


class Writer:
    """Lets a model continue a prompt, again and again, and remembers what it wrote last."""

    def __init__(self, write: Callable[[], Tensor]) -> None:
        self._write = write
        self.written = torch.empty(0)

    def __call__(self) -> None:
        self.written = self._write()


def same_tokens(writers: dict[str, Writer]) -> dict[str, bool]:
    """Whether all wrote the same, and something that would tell a wrong token from a right one."""
    first, *others = (writer.written.cpu() for writer in writers.values())
    return {
        "same tokens": all(torch.equal(first, other) for other in others),
        "varied tokens": len(first.unique()) > 4,
    }


class Trainer:
    """Trains a model on one batch, and remembers the losses."""

    def __init__(self, model: nn.Module, device: str, size: Size, compiled: bool = False) -> None:
        model.train()
        batch = drawn(size, size.batch, size.length).to(device)
        self.losses: list[Tensor] = []
        self._steps = size.steps
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def loss() -> Tensor:
            return model(input_ids=batch, labels=batch, use_cache=False).loss

        self._loss = torch.compile(loss) if compiled else loss

    def __call__(self) -> None:
        for _ in range(self._steps):
            loss = self._loss()
            loss.backward()
            self._optimizer.step()
            self._optimizer.zero_grad()
            self.losses.append(loss.detach())

    def curve(self) -> list[float]:
        return torch.stack(self.losses).tolist()


@contextmanager
def deterministic() -> Iterator[None]:
    """Operators that may differ from run to run take their other form; one without raises RuntimeError."""
    cudnn = torch.backends.cuda.cudnn_sdp_enabled()
    torch.backends.cuda.enable_cudnn_sdp(False)  # its backward pass has no such form
    # Flash attention's has one, which it takes only where others would be refused.
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)
        torch.backends.cuda.enable_cudnn_sdp(cudnn)


def losses_differ_by(trainers: dict[str, Trainer]) -> float:
    """The greatest difference of two losses of the same step, relative to the loss."""
    left, right = (trainer.curve() for trainer in trainers.values())
    return max(abs(a - b) / abs(a) for a, b in zip(left, right, strict=True))


def greedy(model: nn.Module, device: str, size: Size) -> Writer:
    """`model.generate` on the device where the model is."""
    model.eval()
    prompt = drawn(size, 1, size.prompt).to(device)
    options = {"max_new_tokens": size.new_tokens, "min_new_tokens": size.new_tokens}
    return Writer(
        lambda: model.generate(
            prompt, attention_mask=torch.ones_like(prompt), do_sample=False, **options
        )[:, size.prompt :]
    )


def eager_generation(model: nn.Module, pair: Pair, size: Size, rounds: int) -> Comparison:
    """`model.generate`, greedy."""
    writers = {device: greedy(pair.place(model, device), device, size) for device in pair}
    return Comparison.of(dict(writers), size.new_tokens, rounds, lambda: same_tokens(writers))


def eager_training(model: nn.Module, pair: Pair, size: Size, rounds: int) -> Comparison:
    """Training steps; that they are the same is asked of a deterministic run beside the timed one."""
    with deterministic():
        checked = {device: Trainer(pair.place(model, device), device, size) for device in pair}
        for trainer in checked.values():
            trainer()
    curves = [trainer.curve() for trainer in checked.values()]
    del checked, trainer
    release()
    trainers = {device: Trainer(pair.place(model, device), device, size) for device in pair}
    comparison = Comparison.of(
        dict(trainers),
        size.batch * size.length * size.steps,
        rounds,
        lambda: {
            "same losses, to the last bit, when deterministic": curves[0] == curves[1],
            "the losses change": len(set(curves[0])) > 1,
        },
    )
    comparison.notes["relative difference of the losses when timed"] = losses_differ_by(trainers)
    return comparison


def static_decoding(
    model: nn.Module, device: str, size: Size, prepare: Callable[..., Callable[[Tensor], Tensor]]
) -> Writer:
    """Writes token by token over a cache of fixed size, by the step that `prepare` makes."""
    model.eval()
    prompt = drawn(size, 1, size.prompt).to(device)
    cache = StaticCache(config=model.config, max_cache_len=size.prompt + size.new_tokens)

    def step(tokens: Tensor) -> Tensor:
        return model(input_ids=tokens, past_key_values=cache).logits[:, -1:].argmax(-1)

    with torch.no_grad():
        step(prompt)  # makes the cache
        quick = prepare(step, device)

    def write() -> Tensor:
        cache.reset()
        with torch.no_grad():
            written = [step(prompt)]
            for _ in range(size.new_tokens - 1):
                torch.compiler.cudagraph_mark_step_begin()
                written.append(quick(written[-1]).clone())
        return torch.cat(written, 1)

    return Writer(write)


def compiled_generation(model: nn.Module, pair: Pair, size: Size, rounds: int) -> Comparison:
    """The decoding step under torch.compile."""
    writers = {
        device: static_decoding(
            pair.place(model, device),
            device,
            size,
            lambda step, _: torch.compile(step, mode="reduce-overhead"),
        )
        for device in pair
    }
    return Comparison.of(
        dict(writers), size.new_tokens, rounds, lambda: same_tokens(writers), warmup=2
    )


def compiled_training(model: nn.Module, pair: Pair, size: Size, rounds: int) -> Comparison:
    """Training steps whose forward and backward are compiled.

    Compiled kernels may add in any order, so that the losses need only be close.
    """
    trainers = {
        device: Trainer(pair.place(model, device), device, size, compiled=True) for device in pair
    }
    comparison = Comparison.of(
        dict(trainers),
        size.batch * size.length * size.steps,
        rounds,
        lambda: {"losses within 1 %": losses_differ_by(trainers) < 0.01},
        warmup=2,
    )
    comparison.notes["relative difference of the losses"] = losses_differ_by(trainers)
    return comparison


def recorded(step: Callable[[Tensor], Tensor], device: str) -> Callable[[Tensor], Tensor]:
    """`step` for one token, as a graph that is replayed."""
    module = torch.get_device_module(device)
    token = torch.zeros(1, 1, dtype=torch.long, device=device)
    side, main = module.Stream(), module.current_stream()
    side.wait_stream(main)
    with module.stream(side):
        for _ in range(3):
            step(token)
    main.wait_stream(side)
    graph = torch.cuda.CUDAGraph() if device == "cuda" else module.Graph()
    with module.graph(graph):
        result = step(token)

    def replay(value: Tensor) -> Tensor:
        token.copy_(value)
        graph.replay()
        return result

    return replay


def recorded_generation(model: nn.Module, pair: Pair, size: Size, rounds: int) -> Comparison:
    """The decoding step recorded by hand; on flagos it must also write what it writes unrecorded."""
    writers = {
        device: static_decoding(pair.place(model, device), device, size, recorded)
        for device in pair
    }
    plain = static_decoding(pair.place(model, pair.ours), pair.ours, size, lambda step, _: step)
    plain()

    def checks() -> dict[str, bool]:
        unrecorded = torch.equal(writers[pair.ours].written, plain.written)
        return {**same_tokens(writers), "same tokens as without a graph": unrecorded}

    return Comparison.of(dict(writers), size.new_tokens, rounds, checks)


Workload = Callable[[nn.Module, Pair, Size, int], Comparison]

PARTS: dict[str, dict[str, Workload]] = {
    "eager": {"generation": eager_generation, "training": eager_training},
    "compile": {
        "generation, compiled": compiled_generation,
        "training, compiled": compiled_training,
    },
    "graph": {"generation, recorded": recorded_generation},
}


def release() -> None:
    """Gives memory back between workloads."""
    torch._dynamo.reset()
    gc.collect()
    torch.accelerator.empty_cache()


def run(part: str, pair: Pair, size: Size, rounds: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every workload of one part, or why it failed."""
    model = build(size)
    for name, workload in PARTS[part].items():
        result: dict[str, Any]
        start = time.perf_counter()
        if part == "graph" and pair.reference != "cuda":
            result = {"skipped": f"{pair.reference} records no graphs"}
        else:
            try:
                result = asdict(workload(model, pair, size, rounds))
            except Exception:
                result = {"failed": traceback.format_exc()}
        result["seconds"] = time.perf_counter() - start
        show(name, result)
        yield name, result
        release()


def run_apart(part: str, arguments: list[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Runs a workload in a process of its own, which may crash or hang."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "part.json")
        command = [sys.executable, "-m", "tests.bench.gpu.models", *arguments]
        command += ["--parts", part, "--json", str(file)]  # the last of an option counts
        try:
            status = str(subprocess.run(command, timeout=SECONDS_OF_A_PART).returncode)
        except subprocess.TimeoutExpired:
            status = f"none after {SECONDS_OF_A_PART} s"
        if file.exists():
            found = json.loads(file.read_text())["workloads"]
    for name in PARTS[part]:
        if name not in found:
            found[name] = {"failed": f"no result; the exit status of its process: {status}"}
            show(name, found[name])
    yield from found.items()


def is_good(result: dict[str, Any]) -> bool:
    """Whether a workload ran, or was skipped, and computed the same on both devices."""
    return "failed" not in result and all(result.get("checks", {}).values())


def show(name: str, result: dict[str, Any]) -> None:
    """One paragraph for people."""
    print(f"\n{name}  ({result.get('seconds', 0):.0f} s)")
    for status in ("failed", "skipped"):
        if status in result:
            print(f"  {status}: {result[status].rstrip()}", flush=True)
            return
    for device, rate in result["tokens_per_second"].items():
        print(
            f"  {device:8} {rate['median']:12,.1f} tokens/s   "
            f"({rate['least']:,.1f} to {rate['greatest']:,.1f})"
        )
    ratio = result["ratio"]
    print(
        f"  time, flagos over the other: {ratio['median']:.3f} "
        f"({ratio['least']:.3f} to {ratio['greatest']:.3f})"
    )
    for check, passed in result["checks"].items():
        print(f"  {'ok    ' if passed else 'WRONG '} {check}")
    for note, value in result["notes"].items():
        print(f"  {note}: {value}")
    sys.stdout.flush()


def main() -> int:
    """Runs the parts and writes the results after each workload."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--parts", default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--device-pair", default="cuda,flagos", help="the reference, then flagos")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("--small", action="store_true", help="a model for a machine without a chip")
    parser.add_argument(
        "--perturb", action="store_true", help="a control: flagos must be found wrong"
    )
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - PARTS.keys():
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(PARTS)}")
    pair = Pair(*options.device_pair.split(","), perturbed=options.perturb)
    size = SMALL if options.small else Size()
    if options.layers:
        size = Size(**{**asdict(size), "layers": options.layers})

    # torch.optim, dynamo and transformers say much that is not about the result.
    os.environ.setdefault("PYTHONWARNINGS", "ignore")
    workloads: dict[str, Any] = {}
    for part in parts:
        if len(parts) == 1:
            ran = run(part, pair, size, options.rounds)
        else:
            ran = run_apart(part, sys.argv[1:])
        for name, result in ran:
            workloads[name] = result
            if options.json:
                document = {"size": asdict(size), "rounds": options.rounds, "workloads": workloads}
                options.json.write_text(json.dumps(document, indent=1) + "\n")
    if len(parts) > 1:
        ratios = [
            f"{name} {result['ratio']['median']:.3f}"
            for name, result in workloads.items()
            if "ratio" in result
        ]
        print(f"\ntime, flagos over {pair.reference}: " + ", ".join(ratios))
        if ratios:
            mean = statistics.geometric_mean(
                result["ratio"]["median"] for result in workloads.values() if "ratio" in result
            )
            print(f"geometric mean {mean:.3f}")
    bad = [name for name, result in workloads.items() if not is_good(result)]
    if bad and len(parts) > 1:
        print(f"not good: {', '.join(bad)}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
