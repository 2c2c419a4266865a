"""SGLang on flagos beside SGLang's own CUDA platform: decoding, the bits, and servers under load.

    SGLANG_PATH=<folder> python -m tests.bench.gpu.sglang [--case MODEL:MODE,MODE] [--sides A,B] [--ranks N]
        [--load MODEL:MODE] [--rates A,B] [--cuda-path FOLDER] [--rounds N] [--new N] [--requests N] [--seconds S]
        [--json FILE] [--logs FOLDER] [--small]

The folder has SGLang with what it needs, as `make test-sglang` installs it. For the sides on CUDA also sglang-kernel
and FlashInfer, or `--cuda-path` names a folder with them: it is on the path of these sides alone, so that modules in
the place of a wheel that is not there change no other side. Models have the shapes of their names and dummy weights, so
that nothing is loaded. Each side of each case is a server, and all of them are up at once, on the same devices
(`--ranks`): so they are measured in turns, and what disturbs the machine disturbs all.

    cuda       SGLang's own platform, by its Triton attention; no plugin is loaded
    beside     the same with sglang-flagos installed and not asked for: it must be no different, and shows the noise
    flagos     SGLANG_PLATFORM=flagos
    reference  SGLANG_PLATFORM=flagos, references in the place of kernels

Modes are `graphs` (of decoding; SGLang's default but for prompts, whose graphs flagos does not have) and `eager`.

First greedy tokens and their logprobs are compared with the first side's: of prompts alone, and of the same in one
request. The scheduler composes the steps of the latter by when prompts reach it, so that a difference there is told
and does not count. Then the throughput of decoding at batch 1, 8 and 32 (tokens/s: `--new` tokens over what these
take beyond the first), by rounds. Then, with `--load`, the servers of one case get requests of random tokens as
SGLang's bench_serving sends them, due at random times (`--rates` a second; inf: all at once): the time to the first
token (TTFT, ms), of each further one (TPOT, ms) and new tokens a second.

On flagos the fallbacks are counted, by the server itself. Exits with 1 if tokens or logprobs of prompts alone differ
between `cuda`, `beside` and `flagos`, if a request or a server failed, or if there was a fallback. The JSON is
written as findings are there. On a machine without a chip `--small` runs tiny models on the host vendor, the sides
flagos and reference alone.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from adapters.torch.tests.launch import free_port
from tests.bench import timing
from tests.bench.gpu import vllm, vllm_serve

# Side → variables.
SIDES: dict[str, dict[str, str]] = {
    "cuda": {"SGLANG_PLUGINS": "none", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
    "beside": {},
    "flagos": {"SGLANG_PLATFORM": "flagos"},
    "reference": {"SGLANG_PLATFORM": "flagos", "SGLANG_FL_PREFER": "reference"},
}
MODES = {"graphs": "full", "eager": "disabled"}
_OWN = ("cuda", "beside")


@dataclass(frozen=True)
class Work:
    """How much is measured."""

    batches: tuple[int, ...] = (1, 8, 32)
    prompts: int = 8
    length: int = 64
    compared: int = 32
    dtype: str = "bfloat16"
    tokens: int = 65536  # places of each server's cache
    step: int = 8192


SMALL = Work((1, 2), 3, 17, 8, "float32", 2048, 64)


class Server(vllm_serve.Server):
    """One side's server."""

    def ask(self, path: str, **body: Any) -> Any:
        """What the server answers."""
        asked = urllib.request.Request(
            f"{self.url}/{path}",
            data=json.dumps(body).encode() if body else None,
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return json.load(answer)

    def generate(self, prompts: list[list[int]], new: int, **options: Any) -> Any:
        """Greedy tokens of each prompt."""
        params = {"temperature": 0.0, "max_new_tokens": new, "ignore_eos": True}
        return self.ask("generate", input_ids=prompts, sampling_params=params, **options)

    def tokens_per_second(self, prompts: list[list[int]], new: int) -> float:
        """Of decoding: what further tokens take beyond the first."""
        first, whole = (
            timing.seconds_of(partial(self.generate, prompts, count)) for count in (1, new + 1)
        )
        return len(prompts) * new / (whole - first)

    def bits(self, prompts: list[list[int]], new: int) -> list[Any]:
        """Tokens with their logprobs, of each prompt."""
        found = self.generate(prompts, new, return_logprob=True)
        return [each["meta_info"]["output_token_logprobs"] for each in found]

    def fallbacks(self) -> dict[str, int]:
        """Operators that left their first implementation, in the first rank."""
        states = self.ask("server_info")["internal_states"]
        counted = [state["flagos"] for state in states]
        return {op: n["fallbacks"] for one in counted for op, n in one.items() if n["fallbacks"]}


def environment(
    arguments: argparse.Namespace, side: str, kept: Iterable[str] = ("qwen3", "qwen3_moe")
) -> dict[str, str]:
    """All variables of a side's processes, which import some of SGLang's models alone."""
    folder = os.environ["SGLANG_PATH"]
    first = [str(arguments.cuda_path)] if arguments.cuda_path and side in _OWN else []
    models = {path.stem for path in (Path(folder) / "sglang/srt/models").glob("*.py")}
    others = models - {"__init__", "registry", "utils", *kept}
    path = [*first, folder, str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
    return {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "PYTHONPATH": os.pathsep.join(path),
        "SGLANG_DISABLED_MODEL_ARCHS": ",".join(sorted(others)),
        "TOKENIZERS_PARALLELISM": "false",
        "TRANSFORMERS_OFFLINE": "1",
        **SIDES[side],
    }


def command(arguments: argparse.Namespace, work: Work, place: Path, mode: str, side: str) -> list[str]:  # fmt: skip
    """The command of a side's server, without its port. An idle one does not take a core from the others."""
    batches = [str(batch) for batch in (*work.batches, 2 * work.batches[-1])]
    given = [
        *("--model-path", str(place), "--load-format", "dummy", "--dtype", work.dtype),
        *("--tp-size", str(arguments.ranks), "--disable-custom-all-reduce", "--random-seed", "0"),
        *("--context-length", "2048", "--max-total-tokens", str(work.tokens)),
        *("--max-running-requests", batches[-1], "--chunked-prefill-size", str(work.step)),
        *("--cuda-graph-backend-prefill", "disabled", "--cuda-graph-backend-decode", MODES[mode]),
        *("--sampling-backend", "pytorch", "--disable-radix-cache", "--sleep-on-idle"),
        *("--host", "127.0.0.1", "--log-level", "warning"),
    ]
    if mode == "graphs":
        given += ["--cuda-graph-bs-decode", *batches]
    if side in _OWN:
        given += ["--attention-backend", "triton"]
    return [sys.executable, "-m", "sglang.launch_server", *given]


@contextlib.contextmanager
def server(given: list[str], variables: dict[str, str], side: str, log: Path) -> Iterator[Server]:
    """Starts a server; ends it and its processes at the end."""
    port = free_port()
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [*given, "--port", str(port)],
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield Server(side, port, process, log)
    finally:
        vllm.kill(process)
        process.wait()


def prompts(count: int, length: int, vocabulary: int) -> list[list[int]]:
    """Different ones, the same in each run."""
    return [[(7919 * i + 104729 * j + i * j) % vocabulary for j in range(length)] for i in range(count)]  # fmt: skip


def compared(up: list[Server], asked: list[list[int]], new: int) -> dict[str, Any]:
    """How tokens and logprobs of each side agree with the first side's, alone and in one request."""
    found: dict[str, Any] = {}
    first: dict[str, Any] = {}
    for each in up:
        alone = [each.bits([prompt], new)[0] for prompt in asked]
        made = {"alone": alone, "together": each.bits(asked, new)}
        first = first or made
        found[each.side] = {
            how: {
                "equal": sum(a == b for a, b in zip(made[how], first[how], strict=True)),
                "of": len(asked),
                "tokens": sum(
                    [t[1] for t in a] == [t[1] for t in b]
                    for a, b in zip(made[how], first[how], strict=True)
                ),
            }
            for how in made
        }
    return found


def measure(
    up: list[Server], work: Work, arguments: argparse.Namespace, vocabulary: int
) -> dict[str, Any]:
    """The bits and the decoding of the servers of one case."""
    shown = prompts(work.prompts, work.length, vocabulary)
    result: dict[str, Any] = {"bits": compared(up, shown, work.compared)}
    for side, how in result["bits"].items():
        told = ", ".join(f"{name} {n['equal']} of {n['of']}" for name, n in how.items())
        print(f"  {side}: the bits of {up[0].side} in {told}", flush=True)
    measured = {}
    for batch in work.batches:
        asked = prompts(batch, 32, vocabulary)
        speeds = {s.side: partial(s.tokens_per_second, asked, arguments.new) for s in up}
        measured[f"batch {batch}"] = timing.measure(speeds, arguments.rounds)
    print(*timing.lines(measured, "tokens/s"), sep="\n", flush=True)
    result["decode"] = {name: one.to_json() for name, one in measured.items()}
    return result


# ------------------------------------------------------------------------------------------ the load


def load(job: dict[str, Any]) -> None:
    """Loads the servers in turns, in a process of its own. Prints what SGLang's bench_serving finds."""
    # bench_serving imports it for a data set of images, and nothing else needs it.
    if find_spec("datasets") is None:
        sys.modules["datasets"] = ModuleType("datasets")
        vars(sys.modules["datasets"])["load_dataset"] = None
    from sglang.benchmark import serving

    def one(side: str, rate: float, requests: int, seed: int) -> dict[str, Any]:
        with tempfile.NamedTemporaryFile("r") as file:
            sys.argv = [
                *("bench_serving", "--backend", "sglang", "--base-url", job["urls"][side]),
                *("--model", job["model"], "--dataset-name", "random-ids"),
                *("--random-input-len", str(job["prompt"]), "--random-output-len", str(job["new"])),
                *("--random-range-ratio", "1", "--num-prompts", str(requests)),
                *("--request-rate", str(rate), "--seed", str(seed), "--warmup-requests", "0"),
                *("--disable-tqdm", "--output-file", file.name),
            ]
            with contextlib.redirect_stdout(sys.stderr):  # a table for each round
                serving.cli_main()
            found = json.loads(file.read())
        measures = {name: found[name] for name in vllm_serve.MEASURES}
        return {"side": side, "rate": rate, **measures, "failed": requests - found["completed"]}

    vllm_serve.take_turns(job, one)


def under_load(
    up: list[Server], model: str, arguments: argparse.Namespace, log: Path, end: float
) -> dict[str, Any]:
    """What the servers of one case do under load."""
    job = {
        "urls": {each.side: each.url for each in up},
        "model": model,
        "rates": [float(rate) for rate in arguments.rates.split(",")],
        "warm": arguments.requests,
        **{name: getattr(arguments, name) for name in ("rounds", "load_seconds", "prompt", "new")},
    }
    variables = environment(arguments, up[0].side)
    return vllm_serve.loaded("tests.bench.gpu.sglang", job, variables, log, end)


# ------------------------------------------------------------------------------------------ all sides


def parser() -> argparse.ArgumentParser:
    """The command line."""
    assert __doc__ is not None
    result = argparse.ArgumentParser(
        prog="python -m tests.bench.gpu.sglang",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--case", action="append", metavar="MODEL:MODES", help="may be repeated")
    result.add_argument("--sides", help="of " + ", ".join(SIDES))
    result.add_argument("--ranks", type=int, default=1, help="devices that share each model")
    result.add_argument("--load", metavar="MODEL:MODE", help="a case that is loaded, too")
    result.add_argument("--rates", default="4,16,inf", help="requests a second")
    result.add_argument("--load-seconds", type=float, default=5.0, help="of a round at one rate")
    result.add_argument("--requests", type=int, default=64, help="of a round at the rate inf")
    result.add_argument("--prompt", type=int, default=1024, help="tokens of a request of the load")
    result.add_argument("--new", type=int, default=64, help="further tokens of each request")
    result.add_argument("--cuda-path", type=Path, help="on the path of cuda and beside alone")
    result.add_argument("--rounds", type=int, default=4)
    result.add_argument("--seconds", type=float, default=540.0)
    result.add_argument("--start-seconds", type=float, default=240.0, help="of all servers' start")
    result.add_argument("--json", type=Path)
    result.add_argument("--logs", type=Path, help="what servers and the load wrote")
    result.add_argument("--small", action="store_true")
    return result


def planned(arguments: argparse.Namespace) -> tuple[list[tuple[str, str]], list[str]] | None:
    """Cases and sides; None if one is unknown, which is told."""
    small = arguments.small
    given = arguments.case or (["0.6B:eager"] if small else ["0.6B:graphs,eager", "8B:graphs"])
    cases = [
        (model, mode)
        for one in given
        for model, _, modes in [one.partition(":")]
        for mode in (modes or "eager").split(",")
    ]
    sides = (arguments.sides or ("flagos,reference" if small else "cuda,flagos")).split(",")
    shapes = vllm.SMALL if small else vllm.MODELS
    asked = [(model, shapes) for model, _ in cases] + [(mode, MODES) for _, mode in cases]
    asked += [(side, SIDES) for side in sides]
    if arguments.load:
        asked.append((arguments.load, [f"{model}:{mode}" for model, mode in cases]))
    return None if vllm.unknown(*asked) else (cases, sides)


def main(given: list[str] | None = None) -> int:
    """Measures. Returns the exit status."""
    arguments = parser().parse_args(given)
    if arguments.load and arguments.load.startswith("{"):
        load(json.loads(arguments.load))
        return 0
    if not (Path(os.environ.get("SGLANG_PATH", "")) / "sglang/srt").is_dir():
        print("SGLANG_PATH names no folder with SGLang: make test-sglang installs one into .venv/sglang")  # fmt: skip
        return 1
    plan = planned(arguments)
    if plan is None:
        return 2
    cases, sides = plan
    os.environ.setdefault("FLAGOS_HOST_DEVICES", str(arguments.ranks))
    end = time.monotonic() + arguments.seconds
    work, shapes = (SMALL, vllm.SMALL) if arguments.small else (Work(), vllm.MODELS)
    if arguments.small:
        arguments.prompt, arguments.new, arguments.requests = 16, 8, 4
    results: dict[str, Any] = {}
    failed = False
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        logs = arguments.logs or folder
        logs.mkdir(parents=True, exist_ok=True)
        up: dict[tuple[str, str], list[Server]] = {}
        for model, mode in cases:
            place = folder / model
            if not place.exists():
                place.mkdir()
                (place / "config.json").write_text(json.dumps(shapes[model]))
                vllm_serve.save_tokenizer(str(place), shapes[model]["vocab_size"])
            up[model, mode] = [
                stack.enter_context(
                    server(
                        command(arguments, work, place, mode, side),
                        environment(arguments, side),
                        side,
                        logs / f"{model}-{mode}-{side}.log",
                    )
                )
                for side in sides
            ]
        latest = min(end, time.monotonic() + arguments.start_seconds)
        for (model, mode), servers in up.items():
            name, running = f"{model}:{mode}", []
            for each in servers:
                try:
                    each.ready(max(1.0, latest - time.monotonic()))
                    running.append(each)
                except RuntimeError as error:
                    print(f"{name} FAILED: {error}", flush=True)
                    failed = True
            print(f"{name}, {time.monotonic() - end + arguments.seconds:.0f} s:", flush=True)
            if not running:
                continue
            found = results[name] = measure(running, work, arguments, shapes[model]["vocab_size"])
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
            if name == arguments.load:
                log = logs / f"{name.replace(':', '-')}-load.log"
                found["load"] = under_load(running, str(folder / model), arguments, log, end)
                vllm_serve.told(model, mode, found["load"]["rounds"], [s.side for s in running])
                if "failed" in found["load"]:
                    print(f"  {found['load']['failed']}", flush=True)
                    failed = True
                failed |= any(row["failed"] for row in found["load"]["rounds"])
            found["fallbacks"] = {s.side: s.fallbacks() for s in running if s.side not in _OWN}
            print(f"  fallbacks: {found['fallbacks']}", flush=True)
            failed |= any(found["fallbacks"].values())
            failed |= any(
                how["alone"]["equal"] < how["alone"]["of"]
                for side, how in found["bits"].items()
                if side != "reference"
            )
            if arguments.json:
                arguments.json.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
