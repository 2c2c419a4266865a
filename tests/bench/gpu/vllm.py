"""vLLM on flagos beside vLLM's own CUDA platform: speed, memory, and whether both compute the same bits.

    VLLM_PATH=<folder> python -m tests.bench.gpu.vllm [--models A,B] [--sides A,B] [--attention TRITON_ATTN|FLASH_ATTN]
        [--modes eager,graphs,compiled] [--case MODEL:MODE:SIDE,SIDE] [--ranks N] [--rounds N] [--requests N]
        [--seconds S] [--side-seconds S] [--json FILE] [--logs FOLDER] [--small] [--check]

The folder has vLLM with what it needs, as `make test-vllm` installs it; for the sides on CUDA also the
libraries of vLLM's own wheel, put into its folder vllm/: _C_stable_libtorch.abi3.so,
_moe_C_stable_libtorch.abi3.so, and vllm_flash_attn/_vllm_fa3_C.abi3.so for FLASH_ATTN. `--check` says what is
missing. Models have the shapes of their names and dummy weights, so that nothing is loaded. Each side is a process
of its own, one after the other:

    cuda       vLLM's own platform, vllm-flagos not loaded (VLLM_PLUGINS is empty)
    beside     the same with vllm-flagos installed and not asked for: it must be no different
    flagos     VLLM_PLUGINS=flagos, vLLM's own kernels (vllm_c)
    reference  VLLM_PLUGINS=flagos, references in the place of vLLM's kernels
    flaggems   VLLM_PLUGINS=flagos with FLAGOS_FLAGGEMS=verified, where FlagGems is installed: the kernels with
               verdicts of this chip, which `flagos vllm verify` and `flagos verify` make

Modes, the same on all sides:

    eager      no graphs, no Inductor
    graphs     full graphs of decoding steps (vLLM's FULL_DECODE_ONLY, no Inductor), of four sizes
    pieces     the same, and graphs of the pieces between attention for steps with prompts, cut by torch.compile (no
               Inductor), of eight sizes
    compiled   vLLM's default: Inductor, and graphs of its pieces; a minute or more of each start compiles

A side measures its start (s), the blocks of the KV cache, the time of a decoding step at batch 1, 8 and 64 (ms: what
128 more tokens take, divided by 128), the time to the first token of a prompt of 1024 (ms, one request, without a
server), and throughput (requests of 1024 tokens, 128 new ones; new tokens/s). All but the start are medians of
`--rounds`, after a warm-up of each shape with few tokens. The
first side waits for Triton's compiler: the others find its kernels.

Greedy tokens and their logprobs are compared with the first side's. Exits with 1 if a side on CUDA's kernels that is
not compiled differs in a bit, or if one failed. A side that fails or takes longer than --side-seconds ends alone, and
what it had measured is kept; past --seconds no other is begun. The JSON is written after each side. On a machine
without a chip `--small` runs tiny models on the host vendor, the sides flagos and reference alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, TextIO

_QWEN3 = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "head_dim": 128,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "hidden_act": "silu",
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
}
MODELS: dict[str, dict[str, Any]] = {
    "0.6B": {
        **_QWEN3,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 28,
        "num_attention_heads": 16,
        "tie_word_embeddings": True,
    },
    "8B": {
        **_QWEN3,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
    },
    "30B-A3B": {
        **_QWEN3,
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "hidden_size": 2048,
        "intermediate_size": 6144,
        "moe_intermediate_size": 768,
        "num_hidden_layers": 48,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
        "decoder_sparse_step": 1,
    },
}
_TINY = {
    "hidden_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 32,
    "num_key_value_heads": 2,
}
SMALL = {
    "0.6B": {**MODELS["0.6B"], **_TINY, "vocab_size": 512, "intermediate_size": 256},
    "30B-A3B": {
        **MODELS["30B-A3B"],
        **_TINY,
        "vocab_size": 512,
        "moe_intermediate_size": 64,
        "num_experts": 8,
        "num_experts_per_tok": 2,
    },
}
# Side → (VLLM_PLUGINS, other variables, whether its kernels are those of `cuda`).
SIDES: dict[str, tuple[str | None, dict[str, str], bool]] = {
    "cuda": ("", {}, True),
    "beside": (None, {}, True),
    "flagos": ("flagos", {}, True),
    "reference": ("flagos", {}, False),
    "flaggems": ("flagos", {"FLAGOS_FLAGGEMS": "verified"}, False),
}
ATTENTION = {"TRITON_ATTN": "triton", "FLASH_ATTN": "flash_attention_3"}
BATCHES = (1, 8, 64)
# Mode → options of LLM. The sizes of graphs are the batches that are measured, so that capturing takes seconds.
MODES: dict[str, dict[str, Any]] = {
    "eager": {"enforce_eager": True},
    "graphs": {
        "compilation_config": {
            "mode": 0,
            "cudagraph_mode": "FULL_DECODE_ONLY",
            "cudagraph_capture_sizes": [*BATCHES, 256],
        }
    },
    "pieces": {
        "compilation_config": {
            "mode": 3,
            "backend": "eager",
            "cudagraph_mode": "FULL_AND_PIECEWISE",
            "cudagraph_capture_sizes": [*BATCHES, 128, 256, 512, 1024, 2048],
        }
    },
    "compiled": {"compilation_config": {"cudagraph_capture_sizes": [*BATCHES, 256]}},
}
# The same on all sides: nothing is fetched or built, and FlashInfer and DeepGEMM are not there.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "VLLM_ALLREDUCE_USE_SYMM_MEM": "0",  # flagos has none; for two ranks vLLM takes it for large tensors alone
    "VLLM_DO_NOT_TRACK": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_HOST_IP": "127.0.0.1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_USE_DEEP_GEMM": "0",
    "VLLM_USE_FLASHINFER_SAMPLER": "0",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
    "PYTHONHASHSEED": "0",
}
LIBRARIES = (
    "_C_stable_libtorch.abi3.so",
    "_moe_C_stable_libtorch.abi3.so",
    "vllm_flash_attn/_vllm_fa3_C.abi3.so",
)


@dataclass(frozen=True)
class Work:
    """How much is measured."""

    prompt: int = 1024
    new: int = 128
    requests: int = 256
    compared: int = 32


TINY_WORK = Work(prompt=32, new=8, requests=4, compared=4)


# ------------------------------------------------------------------------------------------- one side


def measure(job: dict[str, Any]) -> None:
    """Measures one side in this process. Prints each finding as it is there."""
    begun = time.perf_counter()
    work = Work(**job["work"])
    from vllm import LLM, SamplingParams

    def found(**findings: Any) -> None:
        print("FOUND " + json.dumps(findings), flush=True)

    found(import_s=time.perf_counter() - begun)
    options = dict(job["options"])
    llm = LLM(**options)
    found(
        start_s=time.perf_counter() - begun,
        blocks=llm.llm_engine.vllm_config.cache_config.num_gpu_blocks,
    )
    vocabulary = json.loads((Path(options["model"]) / "config.json").read_text())["vocab_size"]

    def prompts(count: int, length: int) -> list[dict[str, list[int]]]:
        """Different ones in one batch; vLLM's cache of prefixes is off."""
        return [
            {"prompt_token_ids": [hash((count, i, j)) % vocabulary for j in range(length)]}
            for i in range(count)
        ]

    def seconds(count: int, length: int, new: int) -> float:
        given = SamplingParams(temperature=0.0, max_tokens=new, ignore_eos=True, detokenize=False)
        batch = prompts(count, length)
        begun = time.perf_counter()
        llm.generate(batch, given, use_tqdm=False)
        return time.perf_counter() - begun

    def typical(one: Callable[[], float]) -> float:
        return median(one() for _ in range(job["rounds"]))

    # The bits first: a side that is stopped later has shown at least these.
    shown = SamplingParams(
        temperature=0.0, max_tokens=work.compared, ignore_eos=True, logprobs=1, detokenize=False
    )
    outputs = llm.generate(prompts(8, 64), shown, use_tqdm=False)
    found(
        tokens=[list(o.outputs[0].token_ids) for o in outputs],
        logprobs=[
            [row[token].logprob.hex() for row, token in zip(o.outputs[0].logprobs, o.outputs[0].token_ids, strict=True)]
            for o in outputs
        ],
    )  # fmt: skip
    steps: dict[str, float] = {}
    for batch in BATCHES:

        def step(batch: int = batch) -> float:
            return seconds(batch, 32, work.new + 1) - seconds(batch, 32, 1)

        seconds(batch, 32, 4)
        steps[str(batch)] = 1e3 * typical(step) / work.new
        found(decode_ms=steps)
    seconds(1, work.prompt, 1)
    found(ttft_ms=1e3 * typical(lambda: seconds(1, work.prompt, 1)))
    seconds(work.requests, work.prompt, 4)
    found(
        throughput=work.requests
        * work.new
        / typical(lambda: seconds(work.requests, work.prompt, work.new))
    )
    if job["plugins"] == "flagos":
        ranks = llm.collective_rpc("flagos_counters")
        counted = {op for rank in ranks for op in rank}
        found(
            fallbacks={op: n["fallbacks"] for rank in ranks for op, n in rank.items() if n["fallbacks"]},
            served={op: _winner(op) for op in counted if not op.startswith("aten::")},
        )  # fmt: skip
    found(complete=True)


def _winner(op: str) -> str | None:
    """The implementation that serves; None for a kernel of vLLM's wheel that the plan does not have."""
    import flagos

    try:
        winner: str | None = flagos.explain(op).data["winner"]
    except flagos.InvalidArgumentError:
        return None
    return winner


# ------------------------------------------------------------------------------------------ all sides


def missing(arguments: argparse.Namespace) -> str | None:
    """Why nothing can be measured, and what to do; None if it can."""
    folder = os.environ.get("VLLM_PATH", "")
    if not (Path(folder) / "vllm" / "platforms").is_dir():
        return f"VLLM_PATH={folder} has no vLLM: make test-vllm installs one into .venv/vllm"
    wanted = LIBRARIES if arguments.attention == "FLASH_ATTN" else LIBRARIES[:2]
    absent = [name for name in wanted if not (Path(folder) / "vllm" / name).is_file()]
    if absent and not arguments.small:
        return f"{folder}/vllm lacks {', '.join(absent)} of vLLM's own wheel for CUDA"
    return None


def routes(side: str, attention: str | None) -> str:
    """The text of a flagos.toml for one side: one kernel for attention, and references where they are asked for."""
    from vllm_flagos.kernels.table import KERNELS

    lines = ["[ops]"]
    if attention is not None:
        lines.append(f'"vllm::paged_attention" = "impl:{ATTENTION[attention]}.paged_attention"')
    if side == "reference":
        served = [kernel.qualified for kernel in KERNELS if kernel.reference is not None]
        lines += [f'"{name}" = "reference"' for name in served]
    return "\n".join(lines) + "\n"


def environment(side: str, place: Path, attention: str | None) -> tuple[str | None, dict[str, str]]:
    """VLLM_PLUGINS, and all variables of a side's process, whose caches and flagos.toml are kept in a folder."""
    plugins, variables, _ = SIDES[side]
    result = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(
            [os.environ["VLLM_PATH"], str(Path.cwd()), os.environ.get("PYTHONPATH", "")]
        ),
        **ENVIRONMENT,
        "VLLM_CACHE_ROOT": str(place / "cache"),
        **variables,
    }
    result.pop("VLLM_PLUGINS", None)
    if plugins is not None:
        result["VLLM_PLUGINS"] = plugins
    if plugins == "flagos":
        config = place / "flagos.toml"
        config.write_text(routes(side, attention))
        config.chmod(0o600)
        result["FLAGOS_CONFIG"] = str(config)
    return plugins, result


def run_side(job: dict[str, Any], timeout: float, log: Path) -> dict[str, Any]:
    """One side's findings; with its failure under "failed", if it did not end well."""
    plugins, variables = environment(job["side"], Path(job["options"]["model"]), job["attention"])
    command = [
        sys.executable,
        "-m",
        "tests.bench.gpu.vllm",
        "--one",
        json.dumps({**job, "plugins": plugins}),
    ]
    found: dict[str, Any] = {}
    with open(log, "w") as errors, subprocess.Popen(
        command, env=variables, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True
    ) as process:  # fmt: skip
        assert process.stdout is not None
        reader = threading.Thread(target=_collect, args=(process.stdout, errors, found))
        reader.start()
        reason = None
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            reason = f"no end within {timeout:.0f} s"
        except BaseException:
            kill(process)
            raise
        kill(process)  # and workers that it left
        reader.join()
    if reason is None and not found.pop("complete", False):
        reason = f"status {process.returncode}"
    if reason is not None:
        found["failed"] = f"{reason}: {log.read_text(errors='replace').strip()[-3000:]}"
    return found


def _collect(output: TextIO, errors: TextIO, found: dict[str, Any]) -> None:
    for line in output:
        if line.startswith("FOUND "):
            findings = json.loads(line.removeprefix("FOUND "))
            found.update(findings)
            numbers = {k: v for k, v in findings.items() if isinstance(v, int | float | dict)}
            if numbers and "served" not in numbers and "complete" not in numbers:
                print("    " + json.dumps(numbers), flush=True)
        else:
            errors.write(line)


def kill(process: subprocess.Popen[Any]) -> None:
    """Ends a process and all of its session."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # all of its processes have ended


def show(name: str, found: dict[str, Any], first: dict[str, Any]) -> None:
    """Prints a line for one side."""
    if "failed" in found:
        reason = found["failed"].strip().splitlines()
        print(f"{name:<34} FAILED: {reason[0][:200]} ... {reason[-1][:400]}", flush=True)
        return

    def ratio(value: float, base: float | None) -> str:
        return f"{value:9.2f} ({value / base:5.3f})" if base else f"{value:9.2f}"

    theirs = first.get("decode_ms", {})
    steps = " ".join(ratio(found["decode_ms"][str(b)], theirs.get(str(b))) for b in BATCHES)
    print(
        f"{name:<34} start {found['start_s']:6.1f} s  blocks {found['blocks']:7}  tokens/s "
        f"{ratio(found['throughput'], first.get('throughput'))}  decode ms at {'/'.join(map(str, BATCHES))} {steps}  "
        f"TTFT ms {ratio(found['ttft_ms'], first.get('ttft_ms'))}  {found['same']}",
        flush=True,
    )


def compared(found: dict[str, Any], first: dict[str, Any]) -> str:
    """How a side's tokens and logprobs agree with those of the first."""
    if found["tokens"] == first["tokens"] and found["logprobs"] == first["logprobs"]:
        return "same bits"
    equal = sum(a == b for a, b in zip(found["tokens"], first["tokens"], strict=True))
    apart = max(
        abs(float.fromhex(a) - float.fromhex(b))
        for ours, theirs in zip(found["logprobs"], first["logprobs"], strict=True)
        for a, b in zip(ours[:1], theirs[:1], strict=True)
    )
    return f"{equal} of {len(first['tokens'])} token sequences equal, first logprobs within {apart:.2g}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    assert __doc__ is not None
    result = argparse.ArgumentParser(
        prog="python -m tests.bench.gpu.vllm",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    result.add_argument("--models", help="of " + ", ".join(MODELS))
    result.add_argument("--sides", help="of " + ", ".join(SIDES))
    result.add_argument("--attention", choices=ATTENTION, default="TRITON_ATTN")
    result.add_argument("--modes", default="eager,graphs", help="of " + ", ".join(MODES))
    result.add_argument(
        "--case",
        action="append",
        metavar="MODEL:MODE:SIDES",
        help="measure this alone; may be repeated",
    )
    result.add_argument("--ranks", type=int, default=1, help="devices that share each model")
    result.add_argument("--rounds", type=int, default=3)
    result.add_argument("--requests", type=int, default=Work.requests, help="of the throughput")
    result.add_argument("--seconds", type=float, default=540.0)
    result.add_argument("--side-seconds", type=float, default=240.0)
    result.add_argument("--json", type=Path)
    result.add_argument("--logs", type=Path, help="what each side wrote to stderr")
    result.add_argument("--small", action="store_true")
    result.add_argument("--check", action="store_true", help="say what is missing, and end")
    result.add_argument("--one", help=argparse.SUPPRESS)
    return result


def main(given: list[str] | None = None) -> int:
    """Measures. Returns the exit status."""
    arguments = parser().parse_args(given)
    if arguments.one:
        measure(json.loads(arguments.one))
        return 0
    reason = missing(arguments)
    if reason is not None or arguments.check:
        print(reason or "nothing is missing")
        return int(reason is not None)
    shapes = SMALL if arguments.small else MODELS
    sides = arguments.sides or ("flagos,reference" if arguments.small else "cuda,beside,flagos")
    models = arguments.models.split(",") if arguments.models else list(shapes)
    modes = ["eager"] if arguments.small else arguments.modes.split(",")
    cases = arguments.case or [f"{model}:{mode}:{sides}" for model in models for mode in modes]
    plan: list[tuple[str, str, list[str]]] = []
    for case in cases:
        parts = case.split(":")
        if len(parts) != 3:
            print(f"--case {case} is not MODEL:MODE:SIDE,SIDE", file=sys.stderr)
            return 2
        model, mode, chosen = parts[0], parts[1], parts[2].split(",")
        if unknown((model, shapes), (mode, MODES), *((s, SIDES) for s in chosen)):
            return 2
        plan.append((model, mode, chosen))
    end = time.monotonic() + arguments.seconds
    results: dict[str, Any] = {}
    failed = False
    first: dict[tuple[str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        logs = arguments.logs or Path(folder)
        logs.mkdir(parents=True, exist_ok=True)
        for model, mode, chosen in plan:
            place = Path(folder) / model
            place.mkdir(exist_ok=True)
            (place / "config.json").write_text(json.dumps(shapes[model]))
            for side in chosen:
                name = f"{model} {mode} {side}"
                left = end - time.monotonic()
                if left < 30:
                    print(f"no time is left for {name}", flush=True)
                    continue
                print(f"{name}: {left:.0f} s left", flush=True)
                begun = time.monotonic()
                found = run_side(
                    job(arguments, str(place), mode, side),
                    min(left, arguments.side_seconds),
                    logs / f"{name.replace(' ', '-')}.log",
                )
                found["wall_s"] = time.monotonic() - begun
                results[name] = found
                if "tokens" in found:
                    base = first.setdefault((model, mode), found)
                    found["same"] = compared(found, base)
                    # Inductor fuses on vLLM's own platform what flagos leaves apart.
                    exact = SIDES[side][2] and mode != "compiled"
                    failed |= exact and found["same"] != "same bits"
                failed |= "failed" in found
                show(name, found, first.get((model, mode), found))
                if arguments.json:
                    arguments.json.write_text(json.dumps(results, indent=1))
    return int(failed)


def unknown(*asked: tuple[str, Iterable[str]]) -> bool:
    """Whether a name is not among its choices; tells the first one."""
    for name, choices in asked:
        if name not in choices:
            print(f"{name} is unknown; write one of {', '.join(choices)}", file=sys.stderr)
            return True
    return False


def engine(arguments: argparse.Namespace, mode: str, side: str) -> dict[str, Any]:
    """Options of vLLM's engine, the same on all sides but for attention, which is a route on flagos."""
    options: dict[str, Any] = {
        "load_format": "dummy",
        "max_num_seqs": 256,
        "max_num_batched_tokens": 8192,
        **MODES[mode],
        "enable_prefix_caching": False,
        "tensor_parallel_size": arguments.ranks,
        "seed": 0,
    }
    if SIDES[side][0] != "flagos":
        options["attention_backend"] = arguments.attention
    if arguments.small:
        options |= {"dtype": "float32", "kv_cache_memory_bytes": 64 << 20}
    return options


def job(arguments: argparse.Namespace, model: str, mode: str, side: str) -> dict[str, Any]:
    """What one side is to measure."""
    small = arguments.small
    options = {
        "model": model,
        "skip_tokenizer_init": True,
        "max_model_len": 128 if small else 2048,
        **engine(arguments, mode, side),
    }
    return {
        "side": side,
        "options": options,
        "attention": None if small else arguments.attention,
        "rounds": arguments.rounds,
        "work": vars(TINY_WORK if small else Work(requests=arguments.requests)),
    }


if __name__ == "__main__":
    sys.exit(main())
