"""What vLLM can do, on flagos beside vLLM's own CUDA platform: the programs of the adapter's tests, bit for bit.

    VLLM_PATH=<folder> python -m tests.gpu.vllm_programs [--cases "PATTERN;PATTERN"] [--jobs N] [--seconds S]
        [--json FILE] [--logs FOLDER] [--list]

The folder is that of `tests.bench.gpu.vllm`. Each case runs on both sides, with tiny random models in bfloat16, several
cases at a time: LoRA, speculation, grammars, sampling, pooling, 8 bits, experts, preemption, graphs, Inductor, and
two ranks where there are two devices. What a program reports has to be the same on both sides, in every bit, without
a fallback; where Inductor compiles, which fuses more on vLLM's own platform, the differences are told and do not
count. "transformers" is how many sequences of greedy tokens equal those of transformers on the CPU in float32, which
bfloat16 need not reach. Exits with 1 if a case differs or fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from tests.bench.gpu.vllm import ENVIRONMENT, LIBRARIES, kill

PROGRAMS = Path(__file__).resolve().parents[2] / "adapters" / "vllm" / "tests" / "programs"
_GRAPHS = {
    "enforce_eager": False,
    "compilation_config": {
        "mode": 0,
        "cudagraph_mode": "FULL_DECODE_ONLY",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16],
    },
}
# Graphs of the pieces between attention, without Inductor, and as they are captured.
_PIECES = {
    "enforce_eager": False,
    "compilation_config": {
        "mode": 3,
        "backend": "eager",
        "cudagraph_mode": "PIECEWISE",
        "cudagraph_capture_sizes": [1, 2, 4, 8, 16, 32, 64],
    },
}
_BROKEN = {"VLLM_USE_BREAKABLE_CUDAGRAPH": "1"}
_COMPILED = {"enforce_eager": False, "compilation_config": {"cudagraph_capture_sizes": [1, 4, 8]}}


@dataclass(frozen=True)
class Case:
    """A program with the models' folder that it takes, options of `LLM`, and what else is different."""

    program: str
    model: str = "dense"
    options: dict[str, Any] = field(default_factory=dict)
    given: bool = False  # whether the program takes options of its own as its last argument
    ranks: int = 1
    attention: str = "triton"
    variables: dict[str, str] = field(default_factory=dict)
    exact: bool = True


def _greedy(model: str = "dense", **options: Any) -> Case:
    return Case("greedy.py", model, options, given=True)


def _ranks(model: str, **options: Any) -> Case:
    return Case("greedy.py", model, options, given=True, ranks=2)


CASES: dict[str, Case] = {
    "dense": _greedy(),
    "dense, float32": _greedy(dtype="float32"),
    "dense, graphs": _greedy(**_GRAPHS),
    "dense, pieces": _greedy(**_PIECES),
    "dense, pieces as captured": Case("greedy.py", "dense", _PIECES, given=True, variables=_BROKEN),
    "dense, compiled": Case("greedy.py", "dense", _COMPILED, given=True, exact=False),
    "dense, FlashAttention 3": Case("greedy.py", given=True, attention="flash_attention_3"),
    "dense, first runner": Case(
        "greedy.py", given=True, variables={"VLLM_USE_V2_MODEL_RUNNER": "0"}
    ),
    "dense, preempted": _greedy(num_gpu_blocks_override=17),
    "dense, one step ahead": _greedy(async_scheduling=True),
    "experts": _greedy("experts"),
    "experts, graphs": _greedy("experts", **_GRAPHS),
    "experts, pieces": _greedy("experts", **_PIECES),
    "experts, pieces as captured": Case(
        "greedy.py", "experts", _PIECES, given=True, variables=_BROKEN
    ),
    "experts, compiled": Case("greedy.py", "experts", _COMPILED, given=True, exact=False),
    "experts in groups": _greedy("grouped"),
    "features": Case("features.py"),
    "features, graphs": Case("features.py", options=_GRAPHS),
    "grammar": Case("grammar.py"),
    "adapters": Case("lora.py", "", given=True),
    "adapters, graphs": Case("lora.py", "", _GRAPHS, given=True),
    "adapters, pieces": Case("lora.py", "", _PIECES, given=True),
    "adapters, compiled": Case("lora.py", "", _COMPILED, given=True, exact=False),
    "an encoder and a decoder": Case("speech.py", ""),
    "speculation": Case("speculation.py"),
    "speculation, graphs": Case("speculation.py", options=_GRAPHS),
    "embeddings": Case("pooling.py"),
    "scores": Case("scores.py", given=True),
    "scores, fp8 weights, compiled": Case(
        "scores.py", options={"quantization": "fp8", **_COMPILED}, given=True, exact=False
    ),
    "scores, fp8 weights": Case("scores.py", options={"quantization": "fp8"}, given=True),
    "fp8 blocks": Case("blocks.py", "", given=True),
    "fp8 blocks, compiled": Case("blocks.py", "", _COMPILED, given=True, exact=False),
    "scores, fp8 cache, FlashAttention 3": Case(
        "scores.py",
        options={"kv_cache_dtype": "fp8"},
        given=True,
        attention="flash_attention_3",
    ),
    "scores, fp8 cache": Case("scores.py", options={"kv_cache_dtype": "fp8"}, given=True),
    "tensor parallel": _ranks("dense", tensor_parallel_size=2),
    "tensor parallel, graphs": _ranks("dense", tensor_parallel_size=2, **_GRAPHS),
    "tensor parallel, graphs, without peers' memory": _ranks(
        "dense", tensor_parallel_size=2, disable_custom_all_reduce=True, **_GRAPHS
    ),
    "tensor parallel, pieces": _ranks("dense", tensor_parallel_size=2, **_PIECES),
    "tensor parallel, compiled": Case(
        "greedy.py",
        "dense",
        {"tensor_parallel_size": 2, **_COMPILED},
        given=True,
        ranks=2,
        exact=False,
    ),
    "tensor parallel experts": _ranks("experts", tensor_parallel_size=2),
    "experts by rank": _ranks("experts", tensor_parallel_size=2, enable_expert_parallel=True),
    "pipeline parallel": _ranks("dense", pipeline_parallel_size=2),
}
_BACKENDS = {"triton": "TRITON_ATTN", "flash_attention_3": "FLASH_ATTN"}
_OF_THE_SIDE = ("calls", "device", "fallbacks", "runner", "torch_cuda_kept")


def run(case: Case, side: str, models: Path, device: int, log: Path, timeout: float) -> Any:
    """What one side reports. Raises RuntimeError with the end of its log."""
    # Half of the device has to be free at each start, which is not used: the caches have sizes of their own.
    options = {"dtype": "bfloat16", "gpu_memory_utilization": 0.5, **case.options}
    environment = {
        **os.environ,
        **ENVIRONMENT,
        "PYTHONPATH": os.pathsep.join(
            [os.environ["VLLM_PATH"], str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
        ),
        "VLLM_PLUGINS": "flagos" if side == "flagos" else "",
        "VLLM_CACHE_ROOT": str(models / f"cache-{log.stem}"),
        "OMP_NUM_THREADS": "2",
        **case.variables,
    }
    if case.ranks == 1:
        environment["CUDA_VISIBLE_DEVICES"] = str(device)
    if side == "flagos":
        config = models / f"{case.attention}.toml"
        environment["FLAGOS_CONFIG"] = str(config)
    else:
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        options["attention_backend"] = _BACKENDS[case.attention]
    given = [json.dumps({})] if case.given else []
    environment["SERVING_OPTIONS"] = json.dumps(options)
    command = [sys.executable, str(PROGRAMS / case.program), str(models / case.model), *given]
    with open(log, "w") as errors, subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    ) as process:  # fmt: skip
        try:
            output, _ = process.communicate(timeout=timeout)
        finally:
            kill(process)  # and workers that it left
        errors.write(output)  # vLLM's own messages
    lines = [line for line in output.splitlines() if line.startswith("REPORT ")]
    if process.returncode != 0 or not lines:
        raise RuntimeError(f"status {process.returncode}: {log.read_text()[-3000:]}")
    return json.loads(lines[-1].removeprefix("REPORT "))


def differences(cuda: dict[str, Any], flagos: dict[str, Any]) -> list[str]:
    """What the two sides report differently."""
    names = (cuda.keys() | flagos.keys()) - set(_OF_THE_SIDE)
    found = []
    for name in sorted(names):
        ours, theirs = flagos.get(name), cuda.get(name)
        if ours == theirs:
            continue
        if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
            equal = sum(a == b for a, b in zip(ours, theirs, strict=True))
            found.append(f"{name}: {equal} of {len(ours)} equal")
        else:
            found.append(name)
    return found


def judge(name: str, reports: dict[str, Any], expected: dict[str, Any]) -> tuple[str, bool]:
    """A line about a case, and whether it holds."""
    case = CASES[name]
    broken = {side: r for side, r in reports.items() if isinstance(r, Exception)}
    if broken:
        told = "; ".join(f"{side}: {str(why)[-600:]}" for side, why in broken.items())
        return f"FAILED {told}", False
    different = differences(reports["cuda"], reports["flagos"])
    fallbacks = reports["flagos"].get("fallbacks", {})
    line = "same bits" if not different else "differs: " + ", ".join(different)
    if fallbacks:
        line += f"; fallbacks {fallbacks}"
    tokens = reports["flagos"].get("tokens")
    if case.program == "greedy.py" and tokens:
        equal = sum(a == b for a, b in zip(tokens, expected[case.model], strict=True))
        line += f"; transformers {equal} of {len(tokens)}"
    return line, not fallbacks and (not different or not case.exact)


def main() -> int:
    """Runs the cases. Returns the exit status."""
    assert __doc__ is not None
    parser = argparse.ArgumentParser(
        prog="python -m tests.gpu.vllm_programs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cases", default="*", help="patterns of names, by semicolons")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 1) // 3))
    parser.add_argument("--seconds", type=float, default=200.0, help="of each run")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--logs", type=Path)
    parser.add_argument("--list", action="store_true", help="the cases, and end")
    arguments = parser.parse_args()
    patterns = arguments.cases.split(";")
    chosen = [name for name in CASES if any(fnmatchcase(name, p) for p in patterns)]
    if arguments.list or not chosen:
        print("\n".join(CASES))
        return int(not chosen)
    folder = Path(os.environ.get("VLLM_PATH", ""))
    absent = [name for name in LIBRARIES if not (folder / "vllm" / name).is_file()]
    if absent:
        print(f"{folder}/vllm lacks {', '.join(absent)} of vLLM's own wheel for CUDA")
        return 1
    import torch

    devices = torch.cuda.device_count()
    for name in [name for name in chosen if CASES[name].ranks > devices]:
        print(f"{name}: not run, it needs {CASES[name].ranks} devices", flush=True)
        chosen.remove(name)
    sys.path.insert(0, str(PROGRAMS))
    tiny = import_module("tiny")

    failed, numbers, results = False, count(), {}
    with tempfile.TemporaryDirectory() as models:
        logs = arguments.logs or Path(models)
        logs.mkdir(parents=True, exist_ok=True)
        place = Path(models) / "models"
        place.mkdir()
        tiny.write(place)
        for kernel in _BACKENDS:
            config = place / f"{kernel}.toml"
            config.write_text(f'[ops]\n"vllm::paged_attention" = "impl:{kernel}.paged_attention"\n')
            config.chmod(0o600)
        expected = json.loads((place / "expected.json").read_text())

        def both(name: str) -> tuple[str, dict[str, Any], float]:
            begun, reports, device = time.monotonic(), {}, next(numbers) % devices
            for side in ("cuda", "flagos"):
                log = logs / f"{name.replace(' ', '_').replace(',', '')}-{side}.log"
                try:
                    reports[side] = run(CASES[name], side, place, device, log, arguments.seconds)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    reports[side] = error
            return name, reports, time.monotonic() - begun

        with ThreadPoolExecutor(arguments.jobs) as pool:
            for name, reports, seconds in pool.map(both, chosen):
                line, holds = judge(name, reports, expected)
                failed |= not holds
                results[name] = {"line": line, "holds": holds, "seconds": seconds}
                print(f"{name} ({seconds:.0f} s): {line}", flush=True)
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
