"""TransformerEngine's operators on an NVIDIA device: the plan's, beside torch eager and compiled.

    python -m tests.gpu.te [--rounds N] [--no-compile] [--json FILE]

For each operator the time the host needs to submit one call, and the time the device needs for it (replays
of a CUDA graph of ten calls, so that the host is not in it). Sides take turns in one process; least / median /
greatest of the rounds. Every side's result is compared with float64 first. Where TransformerEngine's native
module can be loaded, its own kernels are one more side. About a minute on one H200.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import torch
import torch.nn.functional as F

from tests.bench import machine
from tests.bench.timing import Spread, interleaved

Call = Callable[[], Any]
CALLS = 10
EPS = 1e-5


@dataclass(frozen=True)
class Case:
    """One operator: how the plan calls it, the same in torch, and the result in float64."""

    name: str
    arguments: tuple[Any, ...]
    equivalent: Callable[[], torch.Tensor]
    exact: Callable[[], torch.Tensor]
    #: The part of what the operator returns that is compared.
    result: Callable[[Any], torch.Tensor] = lambda out: out
    #: Whether it changes its arguments, so that calls may not be repeated for the comparison.
    in_place: bool = False


def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def cases() -> list[Case]:
    """Sizes of a model of about 7 billion parameters: 4096 tokens of 4096."""
    torch.manual_seed(0)
    x, dy, w, b = randn(4096, 4096), randn(4096, 4096), randn(4096), randn(4096)
    r = torch.rsqrt(x.float().square().mean(-1) + EPS)
    gate, dgate = randn(4096, 2 * 11008), randn(4096, 11008)
    scores = randn(4, 16, 1024, 1024)
    q, angles = randn(2048, 2, 32, 128), torch.randn(2048, 1, 1, 128, device="cuda")
    weight = randn(4096, 4096) / 64
    workspace = torch.empty(1, dtype=torch.uint8, device="cuda")
    bf16 = 6

    def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (4096,), w, EPS)

    def rms_backward(x: torch.Tensor, w: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(rms(x, w), x, dy)[0]

    def swiglu(x: torch.Tensor) -> torch.Tensor:
        a, c = x.chunk(2, -1)
        return F.silu(a) * c

    def dswiglu(dy: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        a, c = x.chunk(2, -1)
        s = torch.sigmoid(a)
        return torch.cat((dy * c * (s + a * s * (1 - s)), dy * a * s), -1)

    future = torch.ones(1024, 1024, dtype=torch.bool, device="cuda").triu(1)

    def causal(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax((x * 0.125).masked_fill(future, float("-inf")), -1)

    def rope(x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        turned = torch.cat((-high, low), -1)
        return (x * torch.cos(f) + turned * torch.sin(f)).to(x.dtype)

    def gemm(x: torch.Tensor, weight: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, b), approximate="tanh")

    wide = lambda *tensors: [t.double() for t in tensors]  # noqa: E731
    product = (weight, True, x, False, None, None, bf16, b, bf16, True, None)
    product += (False, workspace, 1, False, False)
    return [
        Case(
            "rmsnorm_fwd",
            (x, w, EPS, None, None, bf16, 0, False),
            lambda: rms(x, w),
            lambda: rms(*wide(x, w)),
            lambda out: out[0],
        ),
        Case(
            "rmsnorm_bwd",
            (dy, x, r, w, 0, False),
            lambda: rms_backward(x, w, dy),
            lambda: rms_backward(*wide(x, w, dy)),
            lambda out: out[0],
        ),
        Case(
            "layernorm_fwd",
            (x, w, b, EPS, None, None, bf16, 0, False),
            lambda: F.layer_norm(x, (4096,), w, b, EPS),
            lambda: F.layer_norm(x.double(), (4096,), w.double(), b.double(), EPS),
            lambda out: out[0],
        ),
        Case("swiglu", (gate, None), lambda: swiglu(gate), lambda: swiglu(gate.double())),
        Case(
            "dswiglu",
            (dgate, gate, None),
            lambda: dswiglu(dgate, gate),
            lambda: dswiglu(*wide(dgate, gate)),
        ),
        Case(
            "scaled_upper_triang_masked_softmax_forward",
            (scores.view(64, 1024, 1024), 0.125),
            lambda: causal(scores.view(64, 1024, 1024)),
            lambda: causal(scores.view(64, 1024, 1024).double()),
        ),
        Case(
            "fused_rope_forward",
            (q, angles, None, 0, False, None, 1, 0),
            lambda: rope(q, angles),
            lambda: rope(*wide(q, angles)),
        ),
        Case(
            "generic_gemm",
            product,
            lambda: gemm(x, weight, b),
            lambda: gemm(*wide(x, weight, b)),
            lambda out: out[0],
        ),
        adam(),
    ]


def adam() -> Case:
    """50 tensors of a million float32 each. The equivalent is torch's foreach AdamW."""
    lists = [[randn(1024, 1024, dtype=torch.float32) for _ in range(50)] for _ in range(3)]
    lists.append([t.square() for t in lists[2]])
    start = [[t.double() for t in one] for one in lists]
    theirs = [torch.nn.Parameter(t.clone()) for t in lists[1]]
    for parameter, gradient in zip(theirs, lists[0], strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(
        theirs, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, capturable=True
    )
    flag = torch.zeros(1, dtype=torch.int32, device="cuda")

    def exact() -> torch.Tensor:
        g, p, m, v = (one[0] for one in start)
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        update = m / (1 - 0.9) / ((v / (1 - 0.95)).sqrt() + 1e-8) + 0.1 * p
        return p - 1e-3 * update

    arguments = (2048, flag, lists, 1e-3, 0.9, 0.95, 1e-8, 1, 1, 1, 0.1)
    return Case(
        "multi_tensor_adam", arguments, lambda: optimizer.step(), exact, lambda _: lists[1][0], True
    )


def native_module() -> Any | None:
    """TransformerEngine's own, where it can be loaded."""
    for name in ("transformer_engine_torch_nv", "transformer_engine_torch"):
        try:
            import_module("transformer_engine.pytorch")
            return import_module(name)
        # Not installed, or its libraries do not load: anything may come.
        except Exception as error:
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr)
    return None


def submit(call: Call) -> Callable[[], float]:
    """Microseconds the host needs for one call; the device has nothing to wait for."""

    def measure() -> float:
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        elapsed = time.perf_counter_ns() - start
        torch.cuda.synchronize()
        return elapsed / CALLS / 1e3

    return measure


def device_time(call: Call) -> Callable[[], float]:
    """Microseconds the device needs for one call: a graph of several, replayed."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()

    def measure() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / CALLS * 1e3

    return measure


def check(case: Case, sides: dict[str, Call]) -> dict[str, float]:
    """The largest difference from float64 of each side, relative to the largest expected value."""
    expected = case.exact()
    errors = {}
    for name, call in sides.items():
        if case.in_place and name != "flagos":
            continue  # a second step would start elsewhere
        out = call()
        result = case.result(out) if name in ("flagos", "TE") else out
        difference = (result.double() - expected).abs().max() / expected.abs().max()
        errors[name] = difference.item()
        if errors[name] > 2e-2:
            raise SystemExit(f"{case.name}: {name} is off by {errors[name]:.3g}")
    return errors


def measure(case: Case, tex: Any, native: Any, rounds: int, compiled: bool) -> dict[str, Any]:
    """Errors, and submit and device times by side."""
    op = getattr(tex, case.name)
    sides: dict[str, Call] = {"flagos": lambda: op(*case.arguments), "eager": case.equivalent}
    if compiled and not case.in_place:
        sides["compiled"] = torch.compile(case.equivalent)
    if native is not None and hasattr(native, case.name):
        theirs = getattr(native, case.name)
        arguments = tuple(
            native.DType.kBFloat16
            if isinstance(a, int) and not isinstance(a, bool) and a == 6
            else a
            for a in case.arguments
        )
        sides["TE"] = lambda: theirs(*arguments)
    result: dict[str, Any] = {"operator": case.name, "failed": {}}
    for name in list(sides):
        try:
            for _ in range(0 if case.in_place and name == "flagos" else 3):
                sides[name]()
            torch.cuda.synchronize()
        except Exception as error:
            result["failed"][name] = f"{type(error).__name__}: {error}"
            if name == "flagos":
                raise
            del sides[name]
    result["error"] = check(case, sides)
    result["submit"] = interleaved({n: submit(c) for n, c in sides.items()}, rounds, warmup=3)
    graphs = {}
    for name, call in sides.items():
        try:
            graphs[name] = device_time(call)
        except Exception as error:
            result["failed"][name] = f"no graph: {type(error).__name__}: {error}"
    result["device"] = interleaved(graphs, rounds, warmup=3)
    return result


def cell(spread: Spread | None) -> str:
    if spread is None:
        return ""
    return f"{spread.least:.1f} / {spread.median:.1f} / {spread.greatest:.1f}"


def table(results: list[dict[str, Any]], what: str) -> list[str]:
    """Rows of Markdown: every side, and the ratios of flagos to the others."""
    sides = ["flagos", "eager", "compiled", "TE"]
    present = [side for side in sides if any(side in result[what] for result in results)]
    lines = [f"### {what}, µs", "", "| operator | " + " | ".join(present) + " | flagos / eager |"]
    lines.append("|---|" + "--:|" * (len(present) + 1))
    for result in results:
        row = [cell(result[what].get(side)) for side in present]
        mine, eager = result[what].get("flagos"), result[what].get("eager")
        ratio = f"{mine.median / eager.median:.2f}" if mine and eager else ""
        lines.append(f"| {result['operator']} | " + " | ".join(row) + f" | {ratio} |")
    return [*lines, ""]


def main() -> None:
    """Measures and prints Markdown; `--json FILE` keeps the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="interleaved rounds (default: 20)")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here")
    options = parser.parse_args()
    os.environ.setdefault("TEFL_LOG_LEVEL", "ERROR")
    from te_fl.core import get_tefl_module

    native = native_module()
    tex = get_tefl_module()
    versions = machine.versions("flagos", "te-fl", "torch", "triton", "transformer-engine")
    about = {"gpu": machine.gpu(), "driver": machine.driver(), **versions}
    results = []
    with torch.no_grad():
        for case in cases():
            results.append(measure(case, tex, native, options.rounds, not options.no_compile))
            print(f"measured {case.name}", file=sys.stderr, flush=True)
    print(", ".join(f"{name} {value}" for name, value in about.items()), "\n")
    for what in ("submit", "device"):
        print("\n".join(table(results, what)))
    print("largest difference from float64, relative:")
    for result in results:
        errors = ", ".join(f"{side} {error:.1e}" for side, error in result["error"].items())
        print(f"  {result['operator']}: {errors}")
        for side, reason in result["failed"].items():
            print(f"    {side}: {reason}")
    if options.json:
        plain = [
            {
                **result,
                **{w: {s: asdict(v) for s, v in result[w].items()} for w in ("submit", "device")},
            }
            for result in results
        ]
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"about": about, "results": plain}, file, indent=1)


if __name__ == "__main__":
    main()
