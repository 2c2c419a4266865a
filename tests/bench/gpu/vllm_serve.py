"""vLLM's server on flagos beside the one on its own CUDA platform, under load: TTFT, TPOT and throughput.

    VLLM_PATH=<folder> python -m tests.bench.gpu.vllm_serve [--models A,B] [--sides A,B] [--modes graphs]
        [--attention TRITON_ATTN|FLASH_ATTN] [--rates A,B] [--rounds N] [--load-seconds S] [--prompt N] [--new N]
        [--ranks N] [--seconds S] [--json FILE] [--logs FOLDER] [--small]

The folder, the models, sides and modes are those of `tests.bench.gpu.vllm`. The servers of all sides are up at the same
time on the same devices (`--ranks`), each with memory of its own, and are loaded in turns, one round each: what
disturbs the machine disturbs all. `beside` is cuda again: how far its ratio is from 1 is the noise. The load is that
of `vllm bench serve`: requests of `--prompt` random tokens that are due at random times (Poisson, `--rates` a second;
inf: all at once), `--new` tokens each, streamed.

Told of each side: the time to the first token (TTFT, ms), the time of each further one (TPOT, ms), both as medians and
99th percentiles over the requests, and new tokens a second; then the ratios to the first side, round by round: median,
least and greatest. On flagos the fallbacks are counted, by the server itself. Exits with 1 if a request or a server
failed, or if there was a fallback. The JSON is written after each mode of a model. On a machine without a chip
`--small` runs tiny models on the host vendor, the sides flagos and reference alone.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from adapters.torch.tests.launch import free_port
from tests.bench.gpu import vllm as offline
from tests.bench.timing import Spread

# Of each server; what is left is for weights, activations and graphs of all of them.
CACHE = 20 << 30
MEASURES = {
    "median_ttft_ms": "TTFT ms",
    "p99_ttft_ms": "TTFT p99",
    "median_tpot_ms": "TPOT ms",
    "p99_tpot_ms": "TPOT p99",
    "output_throughput": "tokens/s",
}


@dataclass(frozen=True)
class Server:
    """One side's server."""

    side: str
    port: int
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ready(self, timeout: float) -> None:
        """Waits until it answers. Raises RuntimeError with the end of its log."""
        end = time.monotonic() + timeout
        while True:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5):
                    return
            except OSError as error:
                status = self.process.poll()
                if status is None and time.monotonic() < end:
                    time.sleep(0.5)
                    continue
                reason = f"no answer in {timeout:.0f} s" if status is None else f"status {status}"
                text = self.log.read_text(errors="replace").strip()[-3000:]
                raise RuntimeError(f"the server of {self.side}: {reason}: {text}") from error

    def fallbacks(self) -> dict[str, int]:
        """Operators that left their first implementation, of all ranks; by the server's own counters."""
        asked = urllib.request.Request(
            f"{self.url}/collective_rpc",
            data=json.dumps({"method": "flagos_counters"}).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            ranks = json.load(answer)["results"]
        return {op: n["fallbacks"] for rank in ranks for op, n in rank.items() if n["fallbacks"]}


def save_tokenizer(folder: str, vocabulary: int) -> None:
    """A word for each token, so that random tokens are the same after text."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {f"w{n}": n for n in range(vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=made, eos_token="w1", pad_token="w1").save_pretrained(
        folder
    )


def written(option: str, value: Any) -> list[str]:
    """An option of the engine as `vllm serve` takes it."""
    if isinstance(value, bool):
        return [f"--{option}" if value else f"--no-{option}"]
    return [f"--{option}", json.dumps(value) if isinstance(value, dict) else str(value)]


@contextlib.contextmanager
def server(
    arguments: argparse.Namespace, place: Path, mode: str, side: str, sides: int, log: Path
) -> Iterator[Server]:
    """Starts a side's server; ends it and its engine at the end."""
    _, environment = offline.environment(
        side, place, None if arguments.small else arguments.attention
    )
    environment |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "1", "VLLM_SERVER_DEV_MODE": "1"}
    port = free_port()
    options = {
        "port": port,
        "host": "127.0.0.1",
        "served_model_name": "served",
        "disable_uvicorn_access_log": True,
        "max_model_len": arguments.prompt + arguments.new + 64,
        "kv_cache_memory_bytes": CACHE,
        # Has to be free at the start, and is not used: the size of the cache is given.
        "gpu_memory_utilization": round(0.8 / sides, 2),
        **offline.engine(arguments, mode, side),
    }
    command = [sys.executable, "-m", "vllm.entrypoints.cli.main", "serve", str(place)]
    for name, value in options.items():
        command += written(name.replace("_", "-"), value)
    with open(log, "wb") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield Server(side, port, process, log)
    finally:
        offline.kill(process)
        process.wait()


# ------------------------------------------------------------------------------------------ the load


def load(job: dict[str, Any]) -> None:
    """Loads the servers in turns, in a process of its own. Prints what `vllm bench serve` finds."""
    from vllm.benchmarks.serve import add_cli_args, main_async

    parser = argparse.ArgumentParser()
    add_cli_args(parser)

    def one(side: str, rate: float, requests: int, seed: int) -> dict[str, Any]:
        given = parser.parse_args(
            [
                *("--base-url", job["urls"][side], "--backend", "openai", "--temperature", "0"),
                *("--model", "served", "--tokenizer", job["model"], "--dataset-name", "random"),
                *("--random-input-len", str(job["prompt"]), "--random-output-len", str(job["new"])),
                *("--num-prompts", str(requests), "--request-rate", str(rate), "--seed", str(seed)),
                *("--endpoint", "/v1/completions", "--disable-tqdm", "--num-warmups", "0"),
            ]
        )
        with contextlib.redirect_stdout(io.StringIO()):  # a table for each round
            found = asyncio.run(main_async(given))
        measures = {name: found[name] for name in MEASURES}
        return {"side": side, "rate": rate, **measures, "failed": requests - found["completed"]}

    take_turns(job, one)


def take_turns(job: dict[str, Any], one: Callable[[str, float, int, int], dict[str, Any]]) -> None:
    """Loads each side in every round at every rate, after a warm-up. Prints each finding as it is there."""
    sides = list(job["urls"])
    for side in sides:
        for requests in (1, 8, job["warm"]):
            one(side, float("inf"), requests, 0)
    for round_ in range(job["rounds"]):
        for rate in job["rates"]:
            requests = (
                job["warm"] if rate == float("inf") else max(1, int(rate * job["load_seconds"]))
            )
            for side in sides if round_ % 2 == 0 else sides[::-1]:
                print("FOUND " + json.dumps(one(side, rate, requests, round_)), flush=True)


def loaded(
    module: str, job: dict[str, Any], environment: dict[str, str], log: Path, end: float
) -> dict[str, Any]:
    """The rounds of a load that a module's ``--load`` makes, with what failed under "failed"."""
    result: dict[str, Any] = {"rounds": []}
    command = [sys.executable, "-m", module, "--load", json.dumps(job)]
    with contextlib.ExitStack() as stack, open(log, "w") as errors, subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    ) as process:  # fmt: skip
        stack.callback(offline.kill, process)
        late = threading.Timer(max(1.0, end - time.monotonic()), offline.kill, [process])
        late.start()
        stack.callback(late.cancel)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("FOUND "):
                row = json.loads(line.removeprefix("FOUND "))
                result["rounds"].append(row)
                print("    " + json.dumps(row), flush=True)
        if process.wait() != 0:
            result["failed"] = f"the load ended with {process.returncode} ({log.name})"
    measured = {(row["side"], row["rate"]) for row in result["rounds"]}
    if len(measured) < len(job["urls"]) * len(job["rates"]):
        result.setdefault("failed", "not every side was measured at every rate")
    return result


def told(model: str, mode: str, found: list[dict[str, Any]], sides: list[str]) -> None:
    """Prints medians of the rounds, and ratios to the first side."""
    for rate in dict.fromkeys(row["rate"] for row in found):
        rows = {
            side: [r for r in found if r["side"] == side and r["rate"] == rate] for side in sides
        }
        for side in sides:
            parts = [
                f"{title} {median(r[name] for r in rows[side]):9.2f}"
                for name, title in MEASURES.items()
                if rows[side]
            ]
            print(f"{model} {mode} {rate:g}/s {side:<10} {'  '.join(parts)}", flush=True)
        for side in sides[1:]:
            parts = []
            for name, title in MEASURES.items():
                ratios = [
                    a[name] / b[name]
                    for a, b in zip(rows[side], rows[sides[0]], strict=False)
                    if b[name]
                ]
                if ratios:
                    parts.append(f"{title} {Spread.of(ratios).shown(3)}")
            print(f"{model} {mode} {rate:g}/s {side}/{sides[0]}: {'  '.join(parts)}", flush=True)


def measure(
    arguments: argparse.Namespace, model: str, mode: str, sides: list[str], logs: Path, end: float
) -> dict[str, Any]:
    """One model by one mode: the rounds of all sides, and the fallbacks."""
    shape = (offline.SMALL if arguments.small else offline.MODELS)[model]
    with contextlib.ExitStack() as stack:
        places = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        up: list[Server] = []
        for side in sides:
            place = places / side
            place.mkdir()
            (place / "config.json").write_text(json.dumps(shape))
            save_tokenizer(str(place), shape["vocab_size"])
            log = logs / f"{model}-{mode}-{side}-server.log"
            up.append(stack.enter_context(server(arguments, place, mode, side, len(sides), log)))
        for started in up:
            started.ready(min(arguments.start_seconds, end - time.monotonic()))
        print(f"{model} {mode}: the servers are up", flush=True)
        job = {
            "urls": {s.side: s.url for s in up},
            "model": str(places / sides[0]),
            "rates": [float(rate) for rate in arguments.rates.split(",")],
            **{
                name: getattr(arguments, name)
                for name in ("rounds", "load_seconds", "prompt", "new")
            },
            "warm": 4 if arguments.small else 64,
        }
        _, environment = offline.environment("cuda", places / sides[0], None)
        log = logs / f"{model}-{mode}-load.log"
        result = loaded("tests.bench.gpu.vllm_serve", job, environment, log, end)
        result["fallbacks"] = {}
        if "failed" in result:
            print(f"{model} {mode}: {result['failed']}", flush=True)
        for started in up:
            if offline.SIDES[started.side][0] == "flagos" and "failed" not in result:
                result["fallbacks"][started.side] = started.fallbacks()
    return result


def parser() -> argparse.ArgumentParser:
    """The command line."""
    assert __doc__ is not None
    result = argparse.ArgumentParser(
        prog="python -m tests.bench.gpu.vllm_serve",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--models", default="0.6B", help="of " + ", ".join(offline.MODELS))
    result.add_argument("--sides", help="of " + ", ".join(offline.SIDES))
    result.add_argument("--attention", choices=offline.ATTENTION, default="TRITON_ATTN")
    result.add_argument("--modes", default="graphs", help="of " + ", ".join(offline.MODES))
    result.add_argument("--rates", default="4,16,inf", help="requests a second")
    result.add_argument("--ranks", type=int, default=1, help="devices that share each model")
    result.add_argument("--rounds", type=int, default=5)
    result.add_argument("--load-seconds", type=float, default=6.0, help="of a round at one rate")
    result.add_argument("--prompt", type=int, default=1024)
    result.add_argument("--new", type=int, default=128)
    result.add_argument("--seconds", type=float, default=540.0)
    result.add_argument("--start-seconds", type=float, default=240.0, help="of one server's start")
    result.add_argument("--json", type=Path)
    result.add_argument("--logs", type=Path, help="what servers and the load wrote")
    result.add_argument("--small", action="store_true")
    result.add_argument("--load", help=argparse.SUPPRESS)
    return result


def main(given: list[str] | None = None) -> int:
    """Measures. Returns the exit status."""
    arguments = parser().parse_args(given)
    if arguments.load:
        load(json.loads(arguments.load))
        return 0
    reason = offline.missing(arguments)
    if reason is not None:
        print(reason)
        return 1
    sides = (arguments.sides or ("flagos,reference" if arguments.small else "cuda,flagos")).split(
        ","
    )
    models = arguments.models.split(",")
    modes = ["eager"] if arguments.small else arguments.modes.split(",")
    known = offline.SMALL if arguments.small else offline.MODELS
    asked = ((models, known), (modes, offline.MODES), (sides, offline.SIDES))
    if offline.unknown(*((name, choices) for names, choices in asked for name in names)):
        return 2
    end = time.monotonic() + arguments.seconds
    results: dict[str, Any] = {}
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        logs = arguments.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        for model in models:
            for mode in modes:
                if end - time.monotonic() < 60:
                    print(f"no time is left for {model} {mode}", flush=True)
                    failed = True
                    continue
                try:
                    found = measure(arguments, model, mode, sides, logs, end)
                except RuntimeError as error:
                    print(f"{model} {mode} FAILED: {error}", flush=True)
                    failed = True
                    continue
                results[f"{model} {mode}"] = found
                told(model, mode, found["rounds"], sides)
                unserved = sum(row["failed"] for row in found["rounds"])
                print(f"{model} {mode}: {unserved} requests failed; fallbacks {found['fallbacks']}")
                failed |= bool(unserved) or any(found["fallbacks"].values()) or "failed" in found
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
