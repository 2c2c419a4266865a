"""TransformerEngine's operators on an NVIDIA device: the plan's, beside torch eager and compiled.

    python -m tests.bench.gpu.te [--rounds N] [--seconds S] [--only OPERATOR] [--no-compile] [--json FILE]

For each operator the time the host needs to submit one call, and the time the device needs for it (replays
of a CUDA graph of ten calls, so that the host is not in it). Sides take turns in one process; least / median /
greatest of the rounds. Every side's result is compared with float64 first. Where TransformerEngine's native
module can be loaded, its own kernels are one more side. About a minute on one H200, and as much again for
what torch.compile compiles.

What fails is told with its reason, and the rest goes on; --json is written anew after every operator. Past
--seconds no other operator is begun. Exits with 1 when an operator of ours failed or computed something else.
Without a device `--device cpu --small` runs all but the graphs, to see that the program is whole.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

from tests.bench import machine
from tests.bench.timing import (
    Measured,
    lines,
    measure,
    microseconds_per_replay,
    nanoseconds_per_call,
)

Call = Callable[[], Any]
CALLS = 10
EPS = 1e-5
# The greatest relative difference of a result in bfloat16 from float64.
TOLERANCE = 2e-2


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


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model of about 7 billion parameters: 4096 tokens of 4096."""

    tokens: int = 4096
    hidden: int = 4096
    ffn: int = 11008
    attention: int = 1024
    parameters: int = 50


SMALL = Sizes(64, 64, 96, 32, 2)


def cases(sizes: Sizes, device: str) -> dict[str, Callable[[], Case]]:
    """A function that makes each case, by its operator: memory is taken only for the one that is measured."""

    def randn(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.randn(*shape, device=device, dtype=dtype)

    tokens, hidden, bf16 = sizes.tokens, sizes.hidden, 6

    def norm(name: str) -> Case:
        x, dy, w, b = randn(tokens, hidden), randn(tokens, hidden), randn(hidden), randn(hidden)
        r = torch.rsqrt(x.float().square().mean(-1) + EPS)
        if name == "rmsnorm_fwd":
            arguments: tuple[Any, ...] = (x, w, EPS, None, None, bf16, 0, False)
            return Case(name, arguments, lambda: rms(x, w), lambda: rms(*wide(x, w)), first)
        if name == "rmsnorm_bwd":
            return Case(
                name,
                (dy, x, r, w, 0, False),
                lambda: rms_backward(x, w, dy),
                lambda: rms_backward(*wide(x, w, dy)),
                first,
            )
        return Case(
            name,
            (x, w, b, EPS, None, None, bf16, 0, False),
            lambda: F.layer_norm(x, (hidden,), w, b, EPS),
            lambda: F.layer_norm(x.double(), (hidden,), w.double(), b.double(), EPS),
            first,
        )

    def gated(name: str) -> Case:
        gate, dgate = randn(tokens, 2 * sizes.ffn), randn(tokens, sizes.ffn)
        if name == "swiglu":
            return Case(name, (gate, None), lambda: swiglu(gate), lambda: swiglu(gate.double()))
        return Case(
            name,
            (dgate, gate, None),
            lambda: dswiglu(dgate, gate),
            lambda: dswiglu(*wide(dgate, gate)),
        )

    def softmax(name: str) -> Case:
        scores = randn(64, sizes.attention, sizes.attention)
        future = torch.ones(*scores.shape[1:], dtype=torch.bool, device=device).triu(1)

        def causal(x: torch.Tensor) -> torch.Tensor:
            return torch.softmax((x * 0.125).masked_fill(future, float("-inf")), -1)

        return Case(name, (scores, 0.125), lambda: causal(scores), lambda: causal(scores.double()))

    def turned(name: str) -> Case:
        q = randn(tokens // 2, 2, 32, 128)
        angles = randn(tokens // 2, 1, 1, 128, dtype=torch.float32)
        arguments = (q, angles, None, 0, False, None, 1, 0)
        return Case(name, arguments, lambda: rope(q, angles), lambda: rope(*wide(q, angles)))

    def product(name: str) -> Case:
        x, b = randn(tokens, hidden), randn(hidden)
        weight = randn(hidden, hidden) / hidden**0.5
        workspace = torch.empty(1, dtype=torch.uint8, device=device)
        arguments = (weight, True, x, False, None, None, bf16, b, bf16, True, None)
        arguments += (False, workspace, 1, False, False)
        return Case(
            name,
            arguments,
            lambda: gemm(x, weight, b),
            lambda: gemm(*wide(x, weight, b)),
            first,
        )

    def first(out: Any) -> torch.Tensor:
        result: torch.Tensor = out[0]
        return result

    def wide(*tensors: torch.Tensor) -> list[torch.Tensor]:
        return [t.double() for t in tensors]

    def rms(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, (hidden,), w, EPS)

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

    def rope(x: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        turned = torch.cat((-high, low), -1)
        return (x * torch.cos(f) + turned * torch.sin(f)).to(x.dtype)

    def gemm(x: torch.Tensor, weight: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.gelu(F.linear(x, weight, b), approximate="tanh")

    makers = {
        "rmsnorm_fwd": norm,
        "rmsnorm_bwd": norm,
        "layernorm_fwd": norm,
        "swiglu": gated,
        "dswiglu": gated,
        "scaled_upper_triang_masked_softmax_forward": softmax,
        "fused_rope_forward": turned,
        "generic_gemm": product,
        "multi_tensor_adam": lambda _: adam(sizes, device),
    }
    return {name: partial(make, name) for name, make in makers.items()}


def adam(sizes: Sizes, device: str) -> Case:
    """Tensors of a million float32 each. The equivalent is torch's foreach AdamW."""
    side = min(sizes.hidden, 1024)
    lists = [
        [torch.randn(side, side, device=device) for _ in range(sizes.parameters)] for _ in range(3)
    ]
    lists.append([t.square() for t in lists[2]])
    start = [[t.double() for t in one] for one in lists]
    theirs = [torch.nn.Parameter(t.clone()) for t in lists[1]]
    for parameter, gradient in zip(theirs, lists[0], strict=True):
        parameter.grad = gradient
    optimizer = torch.optim.AdamW(
        theirs, lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1, capturable=device == "cuda"
    )
    flag = torch.zeros(1, dtype=torch.int32, device=device)

    def exact() -> torch.Tensor:
        g, p, m, v = (one[0] for one in start)
        m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
        update = m / (1 - 0.9) / ((v / (1 - 0.95)).sqrt() + 1e-8) + 0.1 * p
        return p - 1e-3 * update

    arguments = (2048, flag, lists, 1e-3, 0.9, 0.95, 1e-8, 1, 1, 1, 0.1)
    return Case(
        "multi_tensor_adam", arguments, lambda: optimizer.step(), exact, lambda _: lists[1][0], True
    )


def native_module() -> Any:
    """TransformerEngine's own, or the reason why it cannot be loaded."""
    reasons = []
    for name in ("transformer_engine_torch_nv", "transformer_engine_torch"):
        try:
            import_module("transformer_engine.pytorch")
            return import_module(name)
        # A package without its libraries may raise any error.
        except Exception as error:
            reasons.append(f"{name}: {type(error).__name__}: {error}")
    return "; ".join(reasons)


def wait(device: str) -> None:
    """Until the device has finished."""
    if device == "cuda":
        torch.cuda.synchronize()


def submit(call: Call, device: str) -> Callable[[], float]:
    """Microseconds the host needs for one call; the device has nothing to wait for."""

    def measure() -> float:
        wait(device)
        nanoseconds = nanoseconds_per_call(call, CALLS)
        wait(device)
        return nanoseconds / 1e3

    return measure


def device_time(call: Call) -> Callable[[], float]:
    """Microseconds the device needs for one call: a graph of several, replayed."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return lambda: microseconds_per_replay(graph) / CALLS


def difference(case: Case, name: str, call: Call, expected: torch.Tensor) -> float:
    """The largest difference from float64, relative to the largest expected value."""
    out = call()
    result = case.result(out) if name in ("flagos", "TE") else out
    return float(((result.double() - expected).abs().max() / expected.abs().max()).item())


def sides_of(case: Case, tex: Any, native: Any, compiled: bool) -> dict[str, Call]:
    """Every way to compute it."""
    op = getattr(tex, case.name)
    sides: dict[str, Call] = {"flagos": lambda: op(*case.arguments), "eager": case.equivalent}
    if compiled and not case.in_place:
        sides["compiled"] = torch.compile(case.equivalent)
    theirs = getattr(native, case.name, None)
    if theirs is not None:
        bf16 = native.DType.kBFloat16
        arguments = tuple(bf16 if type(a) is int and a == 6 else a for a in case.arguments)
        sides["TE"] = lambda: theirs(*arguments)
    return sides


def measured(case: Case, sides: dict[str, Call], rounds: int, device: str) -> dict[str, Any]:
    """Differences, and submit and device times by side; what failed, by side, with its reason."""
    result: dict[str, Any] = {
        "operator": case.name, "error": {}, "failed": {}, "wrong": [], "submit": None, "device": None,
    }  # fmt: skip
    expected = case.exact()
    for name, call in list(sides.items()):
        try:
            if case.in_place and name != "flagos":
                call()  # a second step would start elsewhere: nothing to compare
            else:
                result["error"][name] = error = difference(case, name, call, expected)
                if not error <= TOLERANCE:
                    result["wrong"].append(name)
            for _ in range(2):
                call()
            wait(device)
        except Exception as error:
            result["failed"][name] = f"{type(error).__name__}: {error}"
            del sides[name]
    del expected
    if not sides:
        return result
    calls = {name: submit(call, device) for name, call in sides.items()}
    result["submit"] = measure(calls, rounds, warmup=3)
    graphs = {}
    for name, call in sides.items() if device == "cuda" else ():
        try:
            graphs[name] = device_time(call)
        except Exception as error:
            result["failed"][name] = f"no graph: {type(error).__name__}: {error}"
    if graphs:
        result["device"] = measure(graphs, rounds, warmup=3)
    return result


def table(results: list[dict[str, Any]], what: str) -> list[str]:
    """Lines of text: every side, and its ratio to eager torch."""
    order = ("eager", "flagos", "compiled", "TE")
    found = {
        result["operator"]: Measured(
            {side: result[what].samples[side] for side in order if side in result[what].samples}
        )
        for result in results
        if result[what] is not None
    }
    return [f"{what}:", *lines(found, "µs", "operator", spreads=True), ""]


def plain(result: dict[str, Any]) -> dict[str, Any]:
    """For JSON."""
    taken = {what: result[what] for what in ("submit", "device")}
    return {**result, **{what: one and one.to_json() for what, one in taken.items()}}


def main() -> int:
    """Measures and prints tables; 1 when an operator of ours failed or is wrong."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20, help="interleaved rounds (default: 20)")
    parser.add_argument("--seconds", type=float, default=300, help="the budget (default: 300)")
    parser.add_argument("--only", action="append", metavar="OPERATOR", help="measure only this one")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--small", action="store_true", help="small tensors")
    parser.add_argument("--json", metavar="FILE", help="write the numbers here")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu --small shows that the program runs")
    begin = time.monotonic()
    os.environ.setdefault("TEFL_LOG_LEVEL", "ERROR")
    from te_fl.core import get_tefl_module

    torch.manual_seed(0)
    makers = cases(SMALL if options.small else Sizes(), options.device)
    unknown = set(options.only or ()) - set(makers)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}: there are {', '.join(makers)}")
    tex, native = get_tefl_module(), native_module()
    about = {**machine.versions("flagos", "te-fl", "torch", "triton", "transformer-engine")}
    if options.device == "cuda":
        about = {"gpu": machine.gpu(), "driver": machine.driver(), **about}
    not_measured = {}
    if isinstance(native, str):
        not_measured["TransformerEngine's own kernels"] = native
    if options.device != "cuda":
        not_measured["device times"] = "they need a CUDA device"
    results: list[dict[str, Any]] = []

    def keep() -> None:
        if options.json:
            found = {
                "about": about,
                "not_measured": not_measured,
                "results": [plain(result) for result in results],
            }
            Path(options.json).write_text(json.dumps(found, indent=1) + "\n")

    for name, make in makers.items():
        passed = time.monotonic() - begin
        if options.only and name not in options.only:
            not_measured[name] = "left out by --only"
        elif passed > options.seconds:
            not_measured[name] = f"the budget of {options.seconds:.0f} s was over"
        else:
            compiled = not options.no_compile
            if compiled and passed > options.seconds / 2:
                not_measured[f"{name}, compiled"] = "half of the budget was over"
                compiled = False
            with torch.no_grad():
                try:
                    case = make()
                    sides = sides_of(case, tex, native, compiled)
                    results.append(measured(case, sides, options.rounds, options.device))
                    done = f"measured in {time.monotonic() - begin - passed:.1f} s"
                # One case must not take the others with it.
                except Exception as error:
                    done = f"failed: {type(error).__name__}: {error}"
                    not_measured[name] = done
            print(f"{name}: {done}", file=sys.stderr, flush=True)
        keep()
    print(", ".join(f"{name} {value}" for name, value in about.items()), "\n")
    for what in ("submit", "device"):
        if any(result[what] for result in results):
            print("\n".join(table(results, what)))
    print("largest difference from float64, relative:")
    for result in results:
        errors = ", ".join(f"{side} {error:.1e}" for side, error in result["error"].items())
        print(f"  {result['operator']}: {errors}")
        for side in result["wrong"]:
            print(f"    {side}: WRONG, more than {TOLERANCE}")
        for side, reason in result["failed"].items():
            print(f"    {side}: {reason}")
    print("not measured:" if not_measured else "everything was measured")
    for name, reason in not_measured.items():
        print(f"  {name}: {reason}")
    failed = [name for name, reason in not_measured.items() if reason.startswith("failed")]
    bad = [r for r in results if "flagos" in r["failed"] or "flagos" in r["wrong"]]
    return 1 if failed or bad else 0


if __name__ == "__main__":
    sys.exit(main())
