"""The demonstration behind ``flagos demo``: a small language model trained and sampled on one device.

A Qwen3 of 1.6 M parameters with random weights learns the bytes of a story that ships with the package, then
continues it. The same run is repeated on the CPU with the same seed and compared with the first one bit by bit.
With ``--model FOLDER`` a checkpoint of transformers writes and learns in its place (`demo_checkpoint`).

torch and transformers are imported only when the demonstration runs: importing this module is free.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from torch_fl_cli.demo_common import PROMPT, DemoError, Settings, Subject

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

VOCABULARY = 256  # one token for every byte: no tokenizer to ship
SEQUENCE = 128  # tokens in one training sample
BATCH = 8  # samples in one training step
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Run:
    """The results of one device, copied to the CPU."""

    device: str
    losses: list[float]  # nats per byte, one for each training step
    tokens: list[int]  # the model's continuation of the prompt
    text: str  # the same, to read
    parameters: dict[str, Tensor]  # trained weights
    parameter_count: int
    training_seconds: float
    generation_seconds: float


@dataclass(frozen=True)
class Comparison:
    """The differences of a run from the same run on the CPU. Equal means equal in every bit."""

    max_loss_difference: float
    losses_equal: bool
    tokens_equal: bool
    parameters_equal: bool

    @property
    def identical(self) -> bool:
        """True when nothing differs in any bit."""
        return self.losses_equal and self.tokens_equal and self.parameters_equal


class Progress:
    """A progress bar on a terminal; one line for every tenth of the work anywhere else."""

    WIDTH = 28

    def __init__(self, label: str, total: int, stream: TextIO) -> None:
        self._label, self._total, self._stream = label, total, stream
        self._live = stream.isatty()
        self._printed_tenth = -1

    def update(self, done: int, note: str) -> None:
        """Shows that `done` of the total is finished. `note` stands at the end of the line."""
        filled = self.WIDTH * done // self._total
        bar = "█" * filled + "░" * (self.WIDTH - filled)
        line = f"{self._label:<18} {bar} {done:>3}/{self._total}  {note}"
        if self._live:
            end = "\n" if done == self._total else ""
            self._stream.write(f"\r\x1b[2K{line}{end}")
        else:
            tenth = 10 * done // self._total
            if tenth == self._printed_tenth:
                return
            self._printed_tenth = tenth
            self._stream.write(line + "\n")
        self._stream.flush()


def story() -> bytes:
    """The text that the demonstration learns, as UTF-8 bytes."""
    return resources.files("torch_fl_cli").joinpath("data", "harbour.txt").read_bytes()


def sparkline(values: Sequence[float], width: int = 48) -> str:
    """The values as one line of block characters, the highest one tallest."""
    if not values:
        return ""
    count = min(width, len(values))
    picked = [values[i * (len(values) - 1) // max(count - 1, 1)] for i in range(count)]
    low, high = min(picked), max(picked)
    scale = 7 / (high - low) if high > low else 0.0
    return "".join("▁▂▃▄▅▆▇█"[round((value - low) * scale)] for value in picked)


def require_device(device: str) -> None:
    """Checks that everything the run needs can be imported and that the device is there.

    Raises DemoError naming what is missing and the command that provides it.
    """
    try:
        import torch
    except Exception as error:  # a broken torch raises OSError, AttributeError, ... at import
        raise DemoError(
            f"torch cannot be imported ({error}); `pip install 'flagos[torch]'` installs it, "
            "`flagos doctor` looks for the cause"
        ) from error
    try:
        import transformers  # noqa: F401
    except Exception as error:
        raise DemoError(
            f"transformers cannot be imported ({error}); `pip install transformers` installs it"
        ) from error
    if device.split(":")[0] == "flagos":
        try:
            import torch_fl  # noqa: F401
        except Exception as error:
            raise DemoError(
                f"the flagos device of PyTorch cannot be loaded ({error}); `pip install torch-fl` installs it, "
                "`flagos doctor` looks for the cause"
            ) from error
    try:
        torch.empty(1, device=device)
    except Exception as error:
        raise DemoError(f"device {device!r} cannot be used: {error}") from error


def build_model(seed: int) -> Any:
    """A Qwen3 with random weights on the CPU, the same for the same seed. Embeddings are tied to the output layer."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=VOCABULARY,
        hidden_size=192,
        intermediate_size=512,
        num_hidden_layers=4,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    torch.manual_seed(seed)
    return Qwen3ForCausalLM(config)


def batches(settings: Settings) -> list[Tensor]:
    """The training samples, drawn on the CPU: int64 [BATCH, SEQUENCE] for each step."""
    import torch

    data = torch.frombuffer(bytearray(settings.text), dtype=torch.uint8).long()
    generator = torch.Generator().manual_seed(settings.seed)
    drawn = []
    for _ in range(settings.steps):
        starts = torch.randint(len(data) - SEQUENCE, (BATCH,), generator=generator)
        drawn.append(torch.stack([data[start : start + SEQUENCE] for start in starts.tolist()]))
    return drawn


class SmallModel:
    """The model with random weights, whose tokens are bytes."""

    unit = "byte"
    learning_rate = LEARNING_RATE
    writes_first = False  # random weights write nothing worth reading
    samples = True

    def __init__(self, seed: int) -> None:
        self.prompt = list(PROMPT)
        self._seed = seed

    def model(self) -> Any:
        """The model, made of the seed."""
        return build_model(self._seed)

    def perturb(self, model: Any) -> None:
        """Change a weight of the letter a."""
        model.lm_head.weight[ord("a"), 0].mul_(1.001)

    def batches(self, settings: Settings) -> list[Tensor]:
        """Samples from all of the text."""
        return batches(settings)

    def text(self, tokens: Sequence[int]) -> str:
        """The bytes as text."""
        return as_text(tokens)


def train_and_generate(
    device: str, settings: Settings, subject: Subject, progress: TextIO, perturb: bool = False
) -> Run:
    """Trains on `device` and lets the model continue the prompt there.

    perturb: change one weight by a tenth of a percent first. Only for proving that the comparison notices.
    """
    import torch

    model = subject.model().to(device)
    if perturb:
        with torch.no_grad():
            subject.perturb(model)

    tokens: list[int] = []
    begun = time.perf_counter()
    if subject.writes_first:
        tokens = write(model, device, settings, subject)
    started = time.perf_counter()
    losses = train(model, device, settings, subject, progress)
    trained = time.perf_counter()
    if not subject.writes_first:
        tokens = write(model, device, settings, subject)
    finished = time.perf_counter()
    return Run(
        device=device,
        losses=losses,
        tokens=tokens,
        text=subject.text(tokens),
        parameters={name: value.detach().cpu() for name, value in model.named_parameters()},
        parameter_count=sum(value.numel() for value in model.parameters()),
        training_seconds=trained - started,
        generation_seconds=finished - trained + started - begun,
    )


def train(
    model: Any, device: str, settings: Settings, subject: Subject, progress: TextIO
) -> list[float]:
    """Trains the model, and returns the loss of each step."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=subject.learning_rate)
    losses: list[float] = []
    bar = Progress(f"training on {device}", settings.steps, progress)
    model.train()
    for step, sample in enumerate(subject.batches(settings), start=1):
        tokens = sample.to(device)
        loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
        bar.update(step, f"loss {losses[-1]:.4f}")
    optimizer.zero_grad()  # a checkpoint's gradients are as large as it is
    return losses


def write(model: Any, device: str, settings: Settings, subject: Subject) -> list[int]:
    """The tokens with which the model continues the prompt."""
    import torch
    from transformers import GenerationConfig

    drawn = {"do_sample": True, "temperature": 0.7, "top_k": 20} if subject.samples else {}
    ends = model.generation_config.eos_token_id
    first_end = ends[0] if isinstance(ends, list) else ends
    # A checkpoint's own settings of sampling are left out: both runs are to draw alike, or not at all.
    model.generation_config = GenerationConfig(
        max_new_tokens=settings.new_tokens, eos_token_id=ends, pad_token_id=first_end, **drawn
    )
    model.eval()
    torch.manual_seed(settings.seed)
    prompt = torch.tensor([subject.prompt], device=device)
    written = model.generate(prompt, attention_mask=torch.ones_like(prompt))
    return [int(token) for token in written[0, len(subject.prompt) :].cpu()]


def compare(run: Run, reference: Run) -> Comparison:
    """Compares a run with the reference run bit by bit."""
    import torch

    difference = max(abs(a - b) for a, b in zip(run.losses, reference.losses, strict=True))
    return Comparison(
        max_loss_difference=difference,
        losses_equal=run.losses == reference.losses,
        tokens_equal=run.tokens == reference.tokens,
        parameters_equal=run.parameters.keys() == reference.parameters.keys()
        and all(
            torch.equal(value, reference.parameters[name]) for name, value in run.parameters.items()
        ),
    )


@dataclass(frozen=True)
class Share:
    """The share of a run that one implementation served."""

    operators: int
    calls: int


@dataclass(frozen=True)
class PlanSummary:
    """The implementations that served the operator calls of a run, according to the resolved plan."""

    planned: int  # operators that the plan routes
    fallbacks: int  # calls that left the planned implementation for the CPU
    shares: dict[str, Share]  # by implementation, most calls first

    @property
    def operators(self) -> int:
        """Different operators that were called."""
        return sum(share.operators for share in self.shares.values())

    @property
    def calls(self) -> int:
        """Calls of all operators."""
        return sum(share.calls for share in self.shares.values())


def plan_summary(run_on_device: Callable[[], Run]) -> tuple[Run, PlanSummary]:
    """Runs `run_on_device` and sums up which implementations the plan sent its calls to.

    The counters are those that the dispatch path itself increments.
    """
    import flagos
    import torch_fl

    torch_fl.reset_counters()
    run = run_on_device()
    used = {op: count for op, count in torch_fl.counters().items() if any(count.values())}
    if not used:
        raise DemoError(
            "not one operator call was counted on the device: this torch-fl and this flagos do "
            "not belong together; `flagos doctor` compares their versions"
        )
    operators: Counter[str] = Counter()
    calls: Counter[str] = Counter()
    for op, count in used.items():
        explanation = flagos.explain(op).data
        implementation = str(explanation["winner"] or explanation["route"])
        operators[implementation] += 1
        calls[implementation] += count["calls"]
    return run, PlanSummary(
        planned=sum(torch_fl.plan_summary().values()),
        fallbacks=sum(count["fallbacks"] for count in used.values()),
        shares={name: Share(operators[name], number) for name, number in calls.most_common()},
    )


def as_text(tokens: Sequence[int]) -> str:
    """Bytes as text. Invalid UTF-8 becomes replacement characters."""
    return bytes(tokens).decode("utf-8", errors="replace")


def report(
    run: Run,
    reference: Run,
    comparison: Comparison,
    plan: PlanSummary | None,
    subject: Subject,
) -> str:
    """The closing report, for a person."""

    def verdict(equal: bool) -> str:
        return "equal in every bit" if equal else "DIFFERENT"

    tokens = "sampled tokens" if subject.samples else "tokens"
    lines = [
        "",
        f"loss   {run.losses[0]:.4f} → {run.losses[-1]:.4f} nats per {subject.unit}   {sparkline(run.losses)}",
        "",
        f"wrote  {subject.text(subject.prompt)}│{run.text}".replace("\n", "\n       "),
        "",
        f"compared with the same run on cpu ({len(run.losses)} steps, {len(run.tokens)} {tokens})",
        f"  losses      {verdict(comparison.losses_equal)}, max |Δ| = {comparison.max_loss_difference:g}",
        f"  tokens      {verdict(comparison.tokens_equal)}",
        f"  parameters  {verdict(comparison.parameters_equal)} ({run.parameter_count:,} values)",
        f"  time        {run.device} {run.training_seconds + run.generation_seconds:.1f} s, "
        f"cpu {reference.training_seconds + reference.generation_seconds:.1f} s",
    ]
    if plan is not None:
        lines += [
            "",
            f"plan   {plan.operators} of {plan.planned:,} operators used, {plan.calls:,} calls, "
            f"{plan.fallbacks:,} fell back",
            *(
                f"  {name:<16} {share.operators:>5,} operators  {share.calls:>9,} calls"
                for name, share in plan.shares.items()
            ),
        ]
    return "\n".join(lines)


def as_json(
    run: Run, reference: Run, comparison: Comparison, plan: PlanSummary | None, ok: bool
) -> dict[str, Any]:
    """The closing report, for a program."""
    return {
        "ok": ok,
        "device": run.device,
        "parameters": run.parameter_count,
        "losses": run.losses,
        "cpu_losses": reference.losses,
        "text": run.text,
        "seconds": {
            "training": round(run.training_seconds, 3),
            "generation": round(run.generation_seconds, 3),
            "cpu_training": round(reference.training_seconds, 3),
            "cpu_generation": round(reference.generation_seconds, 3),
        },
        "comparison": {
            "max_loss_difference": comparison.max_loss_difference,
            "losses_equal": comparison.losses_equal,
            "tokens_equal": comparison.tokens_equal,
            "parameters_equal": comparison.parameters_equal,
            "identical": comparison.identical,
        },
        "plan": None
        if plan is None
        else {
            "planned": plan.planned,
            "operators": plan.operators,
            "calls": plan.calls,
            "fallbacks": plan.fallbacks,
            "by_implementation": {name: asdict(share) for name, share in plan.shares.items()},
        },
    }


def parser() -> argparse.ArgumentParser:
    """The command line of ``flagos demo``."""

    def positive(text: str) -> int:
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{value} is not a positive number")
        return value

    result = argparse.ArgumentParser(
        prog="flagos demo",
        description="Train a small Qwen3 on one device, let it write, and compare everything with the CPU.",
    )
    result.add_argument(
        "--model",
        type=Path,
        metavar="FOLDER",
        help="a checkpoint of transformers (config.json, safetensors, tokenizer) instead of the small model",
    )
    result.add_argument(
        "--device", default="flagos", help="torch device to run on (default: flagos)"
    )
    result.add_argument(
        "--steps", type=positive, help="training steps (default: 40, or 4 for a checkpoint)"
    )
    result.add_argument(
        "--tokens",
        type=positive,
        help="bytes to generate (default: 160), or tokens for a checkpoint (default: 32)",
    )
    result.add_argument(
        "--seed", type=int, default=0, help="seed of weights, samples and sampling (default: 0)"
    )
    result.add_argument(
        "--json", action="store_true", help="print one JSON object instead of the report"
    )
    # Changes one weight of the device's run: the comparison must then fail. Used by the tests.
    result.add_argument("--perturb", action="store_true", help=argparse.SUPPRESS)
    return result


def give_back(device: str) -> None:
    """Returns the memory of the device's run, which the CPU's run may need: on the host they have the same."""
    gc.collect()
    if device.split(":")[0] == "flagos":
        from torch_fl import flagos

        flagos.empty_cache()


def settings_of(options: argparse.Namespace) -> Settings:
    """The settings that the command line asks for."""
    steps, tokens = (40, 160) if options.model is None else (4, 32)
    return Settings(
        steps=options.steps or steps,
        seed=options.seed,
        new_tokens=options.tokens or tokens,
        text=story(),
    )


def subject_of(options: argparse.Namespace, settings: Settings) -> Subject:
    """The training that the command line requests."""
    if options.model is None:
        return SmallModel(settings.seed)
    from torch_fl_cli.demo_checkpoint import Checkpoint

    return Checkpoint(options.model, settings.text)


def close_enough(options: argparse.Namespace, comparison: Comparison) -> bool:
    """Whether the device computed what the CPU computes: every bit, but for a checkpoint on a chip its losses."""
    if comparison.identical or options.model is None or options.perturb:
        return comparison.identical
    from torch_fl_cli.demo_checkpoint import TOLERANCE

    if options.device.split(":")[0] == "flagos":
        from torch_fl import flagos as device

        if device.get_device_properties(options.device).vendor == "host":
            return False
    return comparison.max_loss_difference <= TOLERANCE


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the demonstration. Returns 0 when the loss fell and the CPU computed the same, 1 otherwise."""
    options = parser().parse_args(arguments)
    settings = settings_of(options)
    try:
        require_device(options.device)
        subject = subject_of(options, settings)

        def run_on_device() -> Run:
            return train_and_generate(
                options.device, settings, subject, sys.stderr, perturb=options.perturb
            )

        plan: PlanSummary | None = None
        if options.device.split(":")[0] == "flagos":
            run, plan = plan_summary(run_on_device)
        else:
            run = run_on_device()
        give_back(options.device)
        reference = train_and_generate("cpu", settings, subject, sys.stderr)
    except DemoError as error:
        print(f"flagos demo: {error}", file=sys.stderr)
        return 1

    comparison = compare(run, reference)
    fell = run.losses[-1] < run.losses[0]
    same = close_enough(options, comparison)
    ok = fell and same
    if options.json:
        print(json.dumps(as_json(run, reference, comparison, plan, ok), indent=2))
    else:
        print(report(run, reference, comparison, plan, subject))
        if not fell:
            print("\nFAIL: the loss did not fall")
        if not same:
            print(f"\nFAIL: the run on {run.device} is not the run on cpu")
        if ok:
            print(f"\nOK: the loss fell, and {run.device} computed what cpu computes")
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
