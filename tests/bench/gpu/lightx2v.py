"""LightX2V on flagos beside CUDA, time and memory: a DiT of the shape of Wan 2.1 1.3B, with random weights.

    LIGHTX2V_PATH=<checkout> python -m tests.bench.gpu.lightx2v [--rounds N] [--seconds S] [--sides A,B]
        [--json FILE] [--small]

LightX2V keeps its device for the life of a process, so that each side is a process of its own: they load
the same checkpoint, stay on the GPU together, and take turns, one denoising step (both passes of the
guidance) each. The sides:

    cuda      PLATFORM=cuda, LightX2V's own modules over torch: torch_sdpa, torch_native, torch_complex_rope
    flagos    PLATFORM=flagos on device flagos, torch's kernels
    native    PLATFORM=flagos with FLAGOS_LIGHTX2V_DEVICE=cuda, torch's kernels
    fp8, int8 PLATFORM=flagos on device flagos, linear layers in 8 bits; what they lose is told, not judged
    flaggems  PLATFORM=flagos on device flagos, FlagGems' kernels; where FlagGems is installed

Of the checkout only the folders `lightx2v` and `lightx2v_platform` are used, and of the former only the DiT
is imported. Beside torch, transformers and Triton it needs loguru, einops, gguf, imageio, torchvision (of
torch's release) and Pillow; `--check` says what is missing, without a device. Without LIGHTX2V_PATH, or with
--own, a DiT of this file is measured instead, on the two devices of one process.

A side that fails is told with its reason, and the others go on; --json is written anew after every round. Past
--seconds no other round is begun, and a side that has not answered by twice that is ended.
Exits with 1 when the sides do not compute the same, or when one of them failed. On a machine without a chip
`--small --device-pair cpu,flagos` runs what the host vendor has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from tests.bench import machine
from tests.bench.timing import Measured, Spread, measure, seconds_of

ROOT = Path(__file__).resolve().parents[3]

FULL = {
    "layers": 30, "dim": 1536, "ffn_dim": 8960, "heads": 12, "text_dim": 4096, "text_len": 512,
    "grid": [16, 21, 60, 104], "steps": 50,
}  # fmt: skip
SMALL = {
    "layers": 2, "dim": 128, "ffn_dim": 256, "heads": 4, "text_dim": 64, "text_len": 12,
    "grid": [16, 3, 8, 8], "steps": 50,
}  # fmt: skip
#: The greatest relative difference (L2) of a prediction from that of the first side.
TOLERANCE = {"flaggems": 0.06, "fp8": float("inf"), "int8": float("inf")}

ROUTE_TO_TORCH = {
    f"lightx2v::{name}": ["vendor", "reference"]
    for name in (
        "attention",
        "rms_norm",
        "layer_norm",
        "rope",
        "linear",
        "fp8_linear",
        "int8_linear",
    )
}
ROUTE_TO_FLAGGEMS = {op: ["flaggems", *others] for op, others in ROUTE_TO_TORCH.items()}


def has_flaggems() -> bool:
    """Whether there is one, installed or in FLAGGEMS_SOURCE_DIR."""
    return bool(os.environ.get("FLAGGEMS_SOURCE_DIR")) or find_spec("flag_gems") is not None


def missing_packages(checkout: str | None) -> str | None:
    """Why LightX2V's DiT cannot be imported, and what to do; ``None`` when it can."""
    if not checkout or not (Path(checkout) / "lightx2v_platform").is_dir():
        return (
            f"LIGHTX2V_PATH={checkout or ''} is no checkout of LightX2V: it has the folders lightx2v "
            "and lightx2v_platform"
        )
    names = ("loguru", "einops", "gguf", "imageio", "torchvision", "PIL", "safetensors")
    missing = [name.replace("PIL", "Pillow") for name in names if find_spec(name) is None]
    return f"LightX2V needs {', '.join(missing)}: pip install them, or --own" if missing else None


def tiny_wan() -> Any:
    """The tests' module that writes checkpoints and knows LightX2V's names."""
    spec = spec_from_file_location(
        "tiny_wan", ROOT / "adapters" / "lightx2v" / "tests" / "tiny_wan.py"
    )
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    # Mild, so that thirty blocks do not carry away what rounding differs by.
    module.GATES, module.SHARPNESS = 0.3, 1.5
    return module


# ------------------------------------------------------------------------- one side, with LightX2V


def import_dit(checkout: str) -> None:
    """Makes LightX2V importable without what its package loads first: pipelines, servers, encoders."""
    sys.path.insert(0, checkout)
    package = _module("lightx2v")
    package.__path__ = [str(Path(checkout) / "lightx2v")]
    if find_spec("imageio_ffmpeg") is None:
        _module("imageio_ffmpeg")  # writes video files, which is not measured
    import lightx2v_platform.set_ai_device  # noqa: F401


def _module(name: str) -> types.ModuleType:
    """An empty module, imported."""
    module = types.ModuleType(name)
    module.__spec__ = ModuleSpec(name, None, is_package=True)
    sys.modules[name] = module
    return module


class Side:
    """LightX2V's Wan model in this process."""

    def __init__(self, job: dict[str, Any]) -> None:
        wan = tiny_wan()
        job = {**wan.DEFAULTS, **job}
        import_dit(job["lightx2v"])
        from lightx2v.models.networks.wan.model import WanModel
        from lightx2v.models.schedulers.wan.scheduler import WanScheduler
        from lightx2v_platform.base.global_var import AI_DEVICE

        torch.set_grad_enabled(False)
        if os.environ["PLATFORM"] == "flagos":
            import flagos

            for op, route in job["route"].items():
                flagos.set_route(op, route)
        config = wan.model_config(job)
        config["dit_original_ckpt"] = config["dit_quantized_ckpt"] = job["checkpoint"]
        self.device = torch.get_device_module(AI_DEVICE)
        model = WanModel(job["checkpoint"], config, torch.device(AI_DEVICE))
        if AI_DEVICE == "cpu":
            model.to_cuda()
        scheduler = WanScheduler(config)
        model.set_scheduler(scheduler)
        scheduler.generator = torch.Generator()
        noise = torch.randn(job["grid"], generator=torch.Generator().manual_seed(3))
        scheduler.prepare_latents = lambda *_, **__: setattr(
            scheduler, "latents", noise.to(AI_DEVICE)
        )
        scheduler.prepare(0, job["grid"])
        self.model, self.scheduler = model, scheduler
        self.inputs = wan.inputs(job, AI_DEVICE)
        self.step = 0

    def once(self) -> float:
        """Seconds of one denoising step, until the device has finished it."""
        wait = getattr(self.device, "synchronize", lambda: None)
        wait()
        if self.step == 1:  # the memory of loading the weights is free again
            getattr(self.device, "reset_peak_memory_stats", lambda: None)()
        start = time.perf_counter()
        self.scheduler.step_pre(self.step)
        self.model.infer(self.inputs)
        self.scheduler.step_post()
        wait()
        self.step += 1
        return time.perf_counter() - start

    def facts(self) -> dict[str, Any]:
        """The peak of memory, and the implementations that served the operators."""
        peak = getattr(self.device, "max_memory_allocated", lambda: 0)()
        providers: dict[str, Any] = {}
        if os.environ["PLATFORM"] == "flagos":
            from lightx2v_fl import operators

            served = {name: getattr(operators, name).calls for name in operators.__all__}
            providers = {name: counts for name, counts in served.items() if counts}
        return {"peak_bytes": peak, "providers": providers}

    def prediction(self, path: str) -> None:
        """Writes what the model predicted at the last step."""
        torch.save(self.scheduler.noise_pred_cond.float().cpu(), path)


def serve(job: dict[str, Any]) -> None:
    """A side's process: answers one JSON line for each it reads."""
    side = Side(job)
    print("READY", flush=True)
    for line in sys.stdin:
        order, *given = json.loads(line)
        answer = getattr(side, order)(*given)
        print("ANSWER " + json.dumps(answer), flush=True)


class Process:
    """A side, seen from the measuring process."""

    def __init__(
        self, job: dict[str, Any], environment: dict[str, str], log: Path, seconds: float
    ) -> None:
        self._log = log
        with log.open("w") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "tests.bench.gpu.lightx2v", "--serve", json.dumps(job)],
                cwd=ROOT,
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        # A side that hangs must not hold the machine: ended, it reads as one that failed.
        self._late = ""
        self._guard = threading.Timer(seconds, self._expire, [seconds])
        self._guard.daemon = True
        self._guard.start()

    def _expire(self, seconds: float) -> None:
        self._late = f"it did not answer within {seconds:.0f} s; "
        self._child.kill()

    def wait(self) -> None:
        """Until it has loaded the model."""
        self._expect("READY")

    def __call__(self, order: str, *given: Any) -> Any:
        assert self._child.stdin is not None
        self._child.stdin.write(json.dumps([order, *given]) + "\n")
        self._child.stdin.flush()
        return json.loads(self._expect("ANSWER"))

    def _expect(self, word: str) -> str:
        assert self._child.stdout is not None
        for line in self._child.stdout:
            if line.startswith(word):
                return line[len(word) :]
        status = self._child.wait()
        log = self._log.read_text()[-3000:] or "it wrote nothing"
        raise RuntimeError(f"{self._late}it ended with status {status}: {log}")

    def end(self) -> None:
        """Has it end; it is killed when it does not."""
        assert self._child.stdin is not None
        try:
            self._child.stdin.close()
            self._child.wait(timeout=30)
        except (OSError, subprocess.TimeoutExpired):
            self._child.kill()
            self._child.wait()
        self._guard.cancel()


def sides_of(
    pair: Sequence[str], types: tuple[dict[str, Any], dict[str, Any]]
) -> dict[str, tuple[dict[str, str], dict[str, Any]]]:
    """For each side the environment of its process, and what its job adds."""
    of_torch, of_ours = types
    native = {"config": of_ours, "route": ROUTE_TO_TORCH}
    reference = pair[0]
    own = {"PLATFORM": "flagos", "FLAGOS_LIGHTX2V_DEVICE": reference}
    sides = {
        # LightX2V has no platform for the CPU; ours runs its modules there too.
        reference: ({"PLATFORM": "cuda"} if reference == "cuda" else own, {"config": of_torch}),
        "flagos": ({"PLATFORM": "flagos"}, native),
        "native": (own, native),
    }
    for bits in ("fp8", "int8"):
        config = {**of_ours, "dit_quant_scheme": f"flagos-{bits}"}
        sides[bits] = ({"PLATFORM": "flagos"}, {"config": config, "route": ROUTE_TO_TORCH})
    if has_flaggems() and reference == "cuda":
        sides["flaggems"] = (
            {"PLATFORM": "flagos"},
            {"config": of_ours, "route": ROUTE_TO_FLAGGEMS},
        )
    return sides


class Run:
    """The sides that still run, what they measured, and why the others do not."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.processes: dict[str, Process] = {}
        self.samples: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}
        self.not_measured: dict[str, str] = {}
        self._begin, self._seconds = time.monotonic(), options.seconds

    def passed(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begin

    def over(self) -> bool:
        """Whether the budget is used up."""
        return self.passed() > self._seconds

    def tell(self, what: str) -> None:
        """Where it is, on standard error."""
        print(f"{self.passed():6.1f} s  {what}", file=sys.stderr, flush=True)

    def attempt(self, name: str, step: Callable[[Process], Any]) -> Any:
        """The answer of a side; ``None`` when it failed, and the side is left out from then on."""
        try:
            return step(self.processes[name])
        except (RuntimeError, OSError, ValueError) as error:
            self.failed[name] = str(error)
            self.tell(f"{name} failed: {str(error).strip().splitlines()[-1]}")
            self.processes.pop(name).end()
            return None

    def rounds(self, count: int, kept: Callable[[], None]) -> None:
        """Rounds in turn, of which two are not counted, while there is time."""
        for index in range(count + 2):
            if self.over() and index > 2:
                self.not_measured[f"rounds {index - 1} to {count}"] = "the budget was over"
                return
            names = list(self.processes)
            for name in names[index % len(names) :] + names[: index % len(names)]:
                seconds = self.attempt(name, lambda process: process("once"))
                if seconds is not None and index >= 2:
                    self.samples.setdefault(name, []).append(seconds)
            self.tell(
                f"round {index - 1} of {count}" if index >= 2 else f"warm-up {index + 1} of 2"
            )
            if not self.processes:
                return
            kept()


def measure_lightx2v(
    options: argparse.Namespace, size: dict[str, Any], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """Every side of LightX2V itself."""
    wan, run = tiny_wan(), Run(options)
    pair = options.device_pair.split(",")
    found = sides_of(pair, (wan.TYPES_OF_TORCH, wan.TYPES_OF_OURS))
    asked = options.sides.split(",") if options.sides else list(found)
    if unknown := [name for name in asked if name not in found]:
        raise SystemExit(f"no side {', '.join(unknown)}: there are {', '.join(found)}")
    run.not_measured |= {name: "left out by --sides" for name in found if name not in asked}
    if "flaggems" not in found:
        run.not_measured["flaggems"] = "FlagGems is not installed, or there is no CUDA device"

    def partial() -> None:
        spreads = {name: vars(Spread.of(taken)) for name, taken in run.samples.items()}
        keep({"finished": False, "seconds_per_step": spreads, "failed": run.failed})

    with tempfile.TemporaryDirectory() as folder:
        checkpoint = str(Path(folder) / "model.safetensors")
        from safetensors.torch import save_file

        weights = wan.checkpoint({**wan.DEFAULTS, **size}, "cuda" if pair[0] == "cuda" else "cpu")
        save_file({name: w.cpu() for name, w in weights.items()}, checkpoint)
        del weights
        if pair[0] == "cuda":
            torch.cuda.empty_cache()
        run.tell("the checkpoint is written")
        try:
            for name in asked:
                environment, more = found[name]
                job = {**size, "checkpoint": checkpoint, "lightx2v": options.lightx2v, **more}
                log = Path(folder) / f"{name}.log"
                run.processes[name] = Process(job, environment, log, 2 * options.seconds)
            for name in asked:
                run.attempt(name, Process.wait)
                run.tell(f"{name} {'has failed' if name in run.failed else 'has loaded the model'}")
            if run.processes:
                run.rounds(options.rounds, partial)
            predictions, facts = {}, {}
            for name in list(run.processes):
                path = str(Path(folder) / f"{name}.pt")
                run.attempt(name, lambda process, p=path: process("prediction", p))
                fact = run.attempt(name, lambda p: p("facts")) if name in run.processes else None
                if fact is not None:
                    predictions[name], facts[name] = torch.load(path), fact
        finally:
            for process in run.processes.values():
                process.end()
    # A side that failed later has fewer rounds, and nothing to compare.
    samples = {name: run.samples[name] for name in asked if name in facts and name in run.samples}
    result = report(Measured(samples), facts, predictions, "LightX2V's DiT")
    return {**result, "finished": True, "failed": run.failed, "not_measured": run.not_measured}


# ------------------------------------------------------------------------- without LightX2V


class TorchKernels:
    """LightX2V's operators, written in torch."""

    linear = staticmethod(lambda x, w, b: torch.addmm(b, x, w))
    rms_norm = staticmethod(lambda x, w, eps: F.rms_norm(x, (x.shape[-1],), w, eps))
    layer_norm = staticmethod(lambda x, w, b, eps: F.layer_norm(x, (x.shape[-1],), w, b, eps))

    @staticmethod
    def rope(tensors: tuple[Tensor, ...], freqs: Tensor, *_: Any) -> list[Tensor]:
        pairs = (torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) for x in tensors)
        turned = (torch.view_as_real(p * freqs).flatten(-2) for p in pairs)
        return [t.to(x.dtype) for t, x in zip(turned, tensors, strict=True)]

    @staticmethod
    def attention(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
        heads_first = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(*heads_first).transpose(1, 2)


def own_dit(kernels: Any, weights: dict[str, Tensor], size: dict[str, Any]) -> Callable[[], Tensor]:
    """The blocks of Wan over `kernels`, one pass of the guidance."""
    device = next(iter(weights.values())).device
    frames, height, width = size["grid"][1], size["grid"][2] // 2, size["grid"][3] // 2
    tokens, heads = frames * height * width, size["heads"]
    dim = size["dim"] // heads
    generator = torch.Generator().manual_seed(3)
    start = torch.randn(tokens, size["dim"], generator=generator).to(device, torch.bfloat16)
    context = torch.randn(size["text_len"], size["dim"], generator=generator)
    context = context.to(device, torch.bfloat16)
    angles = torch.outer(torch.arange(tokens), 10_000.0 ** -(torch.arange(0, dim, 2) / dim))
    freqs = torch.polar(torch.ones_like(angles), angles).unsqueeze(1).to(device)
    given = {name: w.t() if w.ndim == 2 else w for name, w in weights.items()}

    def linear(name: str, x: Tensor) -> Tensor:
        return kernels.linear(x, given[f"{name}.weight"], given[f"{name}.bias"])

    def attention(name: str, x: Tensor, keys: Tensor, turn: bool) -> Tensor:
        q = kernels.rms_norm(linear(f"{name}.q", x), given[f"{name}.norm_q.weight"], 1e-6)
        k = kernels.rms_norm(linear(f"{name}.k", keys), given[f"{name}.norm_k.weight"], 1e-6)
        q, k, v = (t.unflatten(-1, (heads, dim)) for t in (q, k, linear(f"{name}.v", keys)))
        if turn:
            q, k = kernels.rope((q, k), freqs, True, torch.float32)
        batch = (t.unsqueeze(0) for t in (q, k, v))
        return linear(f"{name}.o", kernels.attention(*batch, None, None, False)[0].flatten(1))

    def run() -> Tensor:
        x = start
        for block in range(size["layers"]):
            name = f"blocks.{block}"
            shift, scale, gate, shift2, scale2, gate2 = given[f"{name}.modulation"][0].unbind(0)
            normed = kernels.layer_norm(x, None, None, 1e-6) * (1 + scale) + shift
            x = x + attention(f"{name}.self_attn", normed, normed, True) * gate
            normed = kernels.layer_norm(
                x, given[f"{name}.norm3.weight"], given[f"{name}.norm3.bias"], 1e-6
            )
            x = x + attention(f"{name}.cross_attn", normed, context, False)
            normed = kernels.layer_norm(x, None, None, 1e-6) * (1 + scale2) + shift2
            hidden = F.gelu(linear(f"{name}.ffn.0", normed), approximate="tanh")
            x = x + linear(f"{name}.ffn.2", hidden) * gate2
        return x

    return run


def measure_own(
    options: argparse.Namespace, size: dict[str, Any], keep: Callable[[dict[str, Any]], None]
) -> dict[str, Any]:
    """The DiT of this file on both devices of one process."""
    import flagos
    from lightx2v_fl import operators

    torch.set_grad_enabled(False)
    wan = tiny_wan()
    reference, ours = options.device_pair.split(",")
    weights = wan.checkpoint({**wan.DEFAULTS, **size}, reference)
    placed = {device: {n: w.to(device) for n, w in weights.items()} for device in (reference, ours)}
    if options.perturb:
        placed[ours]["blocks.0.self_attn.norm_q.weight"] = -weights[
            "blocks.0.self_attn.norm_q.weight"
        ].to(ours)
    runs = {
        reference: own_dit(TorchKernels, placed[reference], size),
        ours: own_dit(operators, placed[ours], size),
    }
    results: dict[str, Tensor] = {}
    if has_flaggems() and reference == "cuda":
        runs["flaggems"] = own_dit(operators, placed[ours], size)
    facts: dict[str, Any] = {}

    def once(name: str) -> float:
        module = torch.get_device_module(ours if name == "flaggems" else name)
        wait = getattr(module, "synchronize", lambda: None)
        # The other sides' memory stays allocated: the peak is above it.
        before = getattr(module, "memory_allocated", lambda: 0)()
        getattr(module, "reset_peak_memory_stats", lambda: None)()
        with flagos.route(ROUTE_TO_FLAGGEMS if name == "flaggems" else ROUTE_TO_TORCH):

            def work() -> None:
                results[name] = runs[name]()

            seconds = seconds_of(work, wait)
        peak = getattr(module, "max_memory_allocated", lambda: 0)() - before
        facts[name] = {"peak_bytes": peak}
        return seconds

    taken = measure({name: lambda n=name: once(n) for name in runs}, options.rounds, warmup=2)
    predictions = {name: result.float().cpu() for name, result in results.items()}
    return report(taken, facts, predictions, "the DiT of this file, one pass a step")


# ------------------------------------------------------------------------- what is told


def report(
    taken: Measured,
    facts: dict[str, Any],
    predictions: dict[str, Tensor],
    what: str,
) -> dict[str, Any]:
    """Times, ratios to the first side round by round, memory, and whether all computed the same."""
    if not taken.samples:
        return {"measured": what, "reference": None, "sides": {}}
    reference = taken.reference
    sides = {}
    for name in taken.samples:
        difference = predictions[name] - predictions[reference]
        error = (difference.norm() / predictions[reference].norm()).item()
        peak, least = facts[name]["peak_bytes"], facts[reference]["peak_bytes"]
        sides[name] = {
            "seconds_per_step": asdict(taken.spread(name)),
            "ratio": asdict(taken.ratio(name)),
            "memory_ratio": peak / least if least else None,
            "relative_error": error,
            "same": bool(error <= TOLERANCE.get(name, 0.02)),
            **facts[name],
        }
    return {"measured": what, "reference": reference, "sides": sides}


def show(result: dict[str, Any]) -> None:
    """For people."""
    print(f"measured: {result['measured']}; ratios to {result['reference']}")
    print(
        f"{'side':<10}{'s per step':>12}{'ratio min/median/max':>26}{'peak MiB':>10}{'ratio':>7}  error"
    )
    for name, side in result["sides"].items():
        ratio, memory = side["ratio"], side["memory_ratio"]
        spread = f"{ratio['least']:.3f} / {ratio['median']:.3f} / {ratio['greatest']:.3f}"
        print(
            f"{name:<10}{side['seconds_per_step']['median']:>12.4f}{spread:>26}"
            f"{side['peak_bytes'] / 2**20:>10.0f}{memory if memory is None else round(memory, 3)!s:>7}"
            f"  {side['relative_error']:.2e}{'' if side['same'] else '  WRONG'}"
        )
    for name, reason in result.get("failed", {}).items():
        print(f"{name} FAILED: {reason}")
    for name, reason in result.get("not_measured", {}).items():
        print(f"not measured: {name}: {reason}")


def main() -> int:
    """0 when every side computed the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=4, help="measured steps of each side")
    parser.add_argument("--seconds", type=float, default=300, help="the budget (default: 300)")
    parser.add_argument("--sides", metavar="A,B", help="only these, the first to compare with")
    parser.add_argument("--device-pair", default="cuda,flagos")
    parser.add_argument("--small", action="store_true", help="a tiny model")
    parser.add_argument("--own", action="store_true", help="without LightX2V")
    parser.add_argument(
        "--perturb", action="store_true", help="with --own: another weight on flagos"
    )
    parser.add_argument("--lightx2v", default=os.environ.get("LIGHTX2V_PATH"), metavar="DIR")
    parser.add_argument(
        "--check", action="store_true", help="only say whether LightX2V can be imported"
    )
    parser.add_argument("--json", metavar="FILE", help="write the result there too")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(json.loads(options.serve))
        return 0
    own = options.own or not options.lightx2v
    if not own or options.check:
        missing = missing_packages(options.lightx2v)
        if missing or options.check:
            print(missing or "LightX2V's DiT can be imported")
            return 1 if missing else 0
    size = SMALL if options.small else FULL
    about: dict[str, Any] = {
        "size": size,
        "rounds": options.rounds,
        "versions": machine.versions("torch", "triton", "flagos", "torch-fl", "lightx2v-fl"),
    }
    if options.device_pair.startswith("cuda"):
        if not torch.cuda.is_available():
            parser.error("torch finds no CUDA device; try --small --device-pair cpu,flagos")
        about |= {"gpu": machine.gpu(), "driver": machine.driver()}

    def keep(result: dict[str, Any]) -> None:
        if options.json:
            Path(options.json).write_text(json.dumps({**result, **about}, indent=2) + "\n")

    result = (measure_own if own else measure_lightx2v)(options, size, keep)
    keep(result)
    show(result)
    same = [side["same"] for side in result["sides"].values()]
    return 0 if len(same) > 1 and all(same) and not result.get("failed") else 1


if __name__ == "__main__":
    sys.exit(main())
