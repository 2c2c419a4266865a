"""What SGLang can do, on flagos beside SGLang's own CUDA platform: programs of the adapter's tests, with tiny models.

    SGLANG_PATH=<folder> python -m tests.gpu.sglang_programs [--cases "PATTERN;PATTERN"] [--jobs N] [--seconds S]
        [--sides cuda,flagos] [--dtype TYPE] [--cuda-path FOLDER] [--json FILE] [--logs FOLDER] [--list]

Folder and `--cuda-path` are those of `tests.bench.gpu.sglang`. Dense models and LoRA run on both sides, and what a
program reports has to be the same in every bit. Experts, grammars and pooling, for which SGLang's own platform has
kernels of other forms, run on flagos alone, as all do by `--sides flagos`; on a machine without a chip on the host
vendor. "transformers" is how many sequences of greedy tokens equal those of transformers on the CPU in float32:
all, where a device multiplies float32 as such. Exits with 1 if a case differs, fails, or has a fallback.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from tests.bench.gpu import sglang
from tests.bench.gpu.vllm import kill
from tests.gpu.vllm_programs import differences

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "adapters/sglang/tests/programs"
TINY = ROOT / "adapters/vllm/tests/programs"  # the tiny models are the same
_MODELS = {"bert", "gemma2", "glm4_moe", "llama", "qwen3", "qwen3_moe"}
_GRAPHS = {"cuda_graph_backend_decode": "full"}
Pairs = Callable[[dict[str, Any], dict[str, Any]], list[tuple[Any, Any]]]


def _tokens(model: str) -> Pairs:
    """Sequences of a report beside those of transformers."""

    def pairs(found: dict[str, Any], expected: dict[str, Any]) -> list[tuple[Any, Any]]:
        once = expected[model]
        return list(zip(found["tokens"] + found.get("many", []), once * 6, strict=False))

    return pairs


def _adapted(found: dict[str, Any], expected: dict[str, Any]) -> list[tuple[Any, Any]]:
    names = ("adapter1", "dense", "adapter2")
    mixed = [
        (one, expected[name][number])
        for number, row in enumerate(found["mixed"])
        for one, name in zip(row, names, strict=True)
    ]
    alone = list(zip(found["alone"], expected["adapter1"], strict=True))
    return [*alone, *zip(found["none"], expected["dense"], strict=True), *mixed]


@dataclass(frozen=True)
class Case:
    """A program with the folders that it takes, and options of `Engine`."""

    program: str
    models: tuple[str, ...]
    pairs: Pairs | None = None
    options: dict[str, Any] = field(default_factory=dict)
    sides: tuple[str, ...] = ("cuda", "flagos")
    ranks: int = 1


def _greedy(model: str, sides: tuple[str, ...] = ("cuda", "flagos"), **options: Any) -> Case:
    ranks = options.get("tp_size", 1) * options.get("pp_size", 1) * options.get("dp_size", 1)
    return Case("greedy.py", (model,), _tokens(model), options, sides, ranks)


_ALONE = ("flagos",)
_ADAPTERS = ("dense", "adapter1", "adapter2")
CASES: dict[str, Case] = {
    "experts": _greedy("experts", _ALONE),
    "experts in groups": _greedy("grouped", _ALONE),
    "adapters": Case("low_rank.py", _ADAPTERS, _adapted),
    "adapters, graphs": Case("low_rank.py", _ADAPTERS, _adapted, _GRAPHS),
    "dense": _greedy("dense"),
    "dense, graphs": _greedy("dense", **_GRAPHS),
    "Llama": _greedy("llama"),
    "windows and caps": _greedy("windows", _ALONE),
    "pages of 16": _greedy("dense", page_size=16),
    "features": Case(
        "features.py",
        ("dense",),
        _tokens("dense"),
        {"constrained_json_disable_any_whitespace": True},
        _ALONE,
    ),
    "embeddings": Case("pooling.py", ("dense",), sides=_ALONE),
    "reranking": Case("reranking.py", ("cross",), sides=_ALONE),
    "tensor parallel": _greedy("dense", tp_size=2),
    "tensor parallel, graphs": _greedy("dense", tp_size=2, **_GRAPHS),
    "experts by rank": _greedy("experts", _ALONE, tp_size=2, ep_size=2),
    "pipeline parallel": _greedy("dense", pp_size=2),
    "replicas": _greedy("dense", dp_size=2),
}


def run(name: str, side: str, arguments: argparse.Namespace, models: Path, device: int, log: Path) -> Any:  # fmt: skip
    """What one side reports. Raises RuntimeError with the end of its log."""
    case = CASES[name]
    options = {
        "dtype": arguments.dtype,
        "mem_fraction_static": 0.3,
        "sampling_backend": "pytorch",
        "cuda_graph_backend_decode": "disabled",
        "cuda_graph_backend_prefill": "disabled",
        "disable_custom_all_reduce": True,
        **case.options,
    }
    if side == "cuda":
        options["attention_backend"] = "triton"
    environment = sglang.environment(arguments, side, _MODELS)
    environment["PYTHONPATH"] += "".join(f"{os.pathsep}{path}" for path in (PROGRAMS, TINY))
    environment |= {"SERVING_OPTIONS": json.dumps(options), "OMP_NUM_THREADS": "2"}
    if case.ranks == 1:
        environment["CUDA_VISIBLE_DEVICES"] = str(device)
    else:
        environment["FLAGOS_HOST_DEVICES"] = str(case.ranks)
    folders = [str(models / each) for each in case.models]
    command = [sys.executable, str(PROGRAMS / case.program), *folders, "{}"]
    with open(log, "w") as errors, subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=arguments.seconds)
        finally:
            kill(process)  # and processes that it left
        errors.write(output)
    lines = [line for line in output.splitlines() if line.startswith("REPORT ")]
    if process.returncode != 0 or not lines:
        raise RuntimeError(f"status {process.returncode}: {log.read_text()[-3000:]}")
    return json.loads(lines[-1].removeprefix("REPORT "))


def judge(name: str, reports: dict[str, Any], expected: dict[str, Any]) -> tuple[str, bool]:
    """A line about a case, and whether it holds."""
    broken = {side: r for side, r in reports.items() if isinstance(r, Exception)}
    if broken:
        told = "; ".join(f"{side}: {str(why)[-900:]}" for side, why in broken.items())
        return f"FAILED {told}", False
    ours, pairs = reports["flagos"], CASES[name].pairs
    different = differences(reports["cuda"], ours) if "cuda" in reports else []
    line = "ran"
    if "cuda" in reports:
        line = "differs: " + ", ".join(different) if different else "same bits"
    if pairs:
        beside = pairs(ours, expected)
        line += f"; transformers {sum(a == b for a, b in beside)} of {len(beside)}"
    fallbacks = ours.get("fallbacks", {})
    if fallbacks:
        line += f"; fallbacks {fallbacks}"
    return line, not fallbacks and not different


def main() -> int:
    """Runs the cases. Returns the exit status."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.sglang_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", default="*", help="patterns of names, by semicolons")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3))
    parser.add_argument("--seconds", type=float, default=200.0, help="of each run")
    parser.add_argument("--sides", default="cuda,flagos", choices=["cuda,flagos", "flagos"])
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cuda-path", type=Path, help="on the path of SGLang's own platform alone")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--list", action="store_true", help="the cases, and end")
    arguments = parser.parse_args()
    patterns = arguments.cases.split(";")
    chosen = [name for name in CASES if any(fnmatchcase(name, p) for p in patterns)]
    if arguments.list or not chosen:
        print("\n".join(CASES))
        return int(not chosen)
    import torch

    devices = torch.cuda.device_count()
    for name in [name for name in chosen if 0 < devices < CASES[name].ranks]:
        print(f"{name}: not run, it needs {CASES[name].ranks} devices", flush=True)
        chosen.remove(name)
    sys.path[:0] = [str(PROGRAMS), str(TINY)]
    failed, numbers, results = False, count(), {}
    with tempfile.TemporaryDirectory() as folder:
        place, logs = Path(folder), arguments.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        import_module("more").write(place)
        expected = json.loads((place / "expected.json").read_text())

        def sides_of(name: str) -> tuple[str, dict[str, Any], float]:
            begun, reports, device = time.monotonic(), {}, next(numbers) % max(1, devices)
            for side in (side for side in CASES[name].sides if side in arguments.sides):
                log = logs / f"{name.replace(' ', '_').replace(',', '')}-{side}.log"
                try:
                    reports[side] = run(name, side, arguments, place, device, log)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    reports[side] = error
            return name, reports, time.monotonic() - begun

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for done in as_completed([pool.submit(sides_of, name) for name in chosen]):
                name, reports, seconds = done.result()
                line, holds = judge(name, reports, expected)
                failed |= not holds
                results[name] = {"line": line, "holds": holds, "seconds": seconds}
                print(f"{name} ({seconds:.0f} s): {line}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
