"""Speed: FlagGems' kernels against the native ones, by operator and class of shapes.

    flagos tune [--ops PATTERNS] [--rounds N] [--seconds N] [--resume] [--out FILE] [--json]

Both are called on flagos, in turns; the time of a call is what passes until the device has done it, many
calls in a row. Classes: `small` is bound by the host, `large` by the device. What is measured is what the
plan reads: the ratio of the medians. An overload without a call here is not measured, and so not routed
by default. What is verified STRICT comes first. When `--seconds` are over, the table is written all the same,
and the rest keeps the ratios of the table before it. While it runs and after an interrupt, what there is lies
beside the table, in FILE.partial, and the table is as it was; `--resume` goes on from there, or from the table.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch

import flagos
from flagos.cli import output_files
from torch_fl.flaggems import implementations, tables
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems.command import at_least_one, not_negative, one_interrupt

Call = Callable[[], Any]

_SIZES = {"tiny": 8, "small": 64, "large": 4096}

# Overloads that take one tensor.
_UNARY = [
    "abs",
    "acos",
    "angle",
    "asin",
    "asinh",
    "atan",
    "bitwise_not",
    "ceil",
    "cos",
    "cosh",
    "digamma",
    "elu",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "gelu",
    "hardsigmoid",
    "hardswish",
    "isinf",
    "isnan",
    "isneginf",
    "leaky_relu",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_sigmoid",
    "logical_not",
    "neg",
    "reciprocal",
    "relu",
    "round",
    "rsqrt",
    "sigmoid",
    "sigmoid_",
    "sgn",
    "silu",
    "silu_",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
    "_log_softmax",
    "_softmax",
    "abs_",
    "cos_",
    "exp_",
    "gelu_",
    "neg_",
    "relu_",
    "rsqrt_",
    "sin_",
    "sqrt_",
    "tanh_",
]
_BINARY = [
    "add.Tensor",
    "mul.Tensor",
    "sub.Tensor",
    "div.Tensor",
    "maximum",
    "minimum",
    "pow.Tensor_Tensor",
    "eq.Tensor",
    "ne.Tensor",
    "lt.Tensor",
    "le.Tensor",
    "gt.Tensor",
    "ge.Tensor",
    "atan2",
    "logaddexp",
    "hypot",
    "fmin",
    "logical_and",
    "logical_or",
    "add_.Tensor",
    "mul_.Tensor",
    "sub_.Tensor",
    "div_.Tensor",
]
_SCALAR = [
    "add.Scalar",
    "mul.Scalar",
    "sub.Scalar",
    "div.Scalar",
    "pow.Tensor_Scalar",
    "eq.Scalar",
    "gt.Scalar",
    "lt.Scalar",
]
_REDUCTIONS = [
    "sum",
    "mean",
    "max",
    "min",
    "amax",
    "prod",
    "all",
    "any",
    "argmax",
    "argmin",
    "var_mean.correction",
    "std.correction",
]


def measured() -> set[str]:
    """The overloads that are measured. Creates no tensor on a device."""
    return set(calls("small", device="meta"))


def calls(
    shape: str,
    dtype: torch.dtype = torch.float32,
    device: str = "flagos",
    matrices: torch.dtype = torch.bfloat16,
) -> dict[str, Call]:
    """For each overload one call on tensors of the class `small` or `large`; `tiny` is for checking values."""
    n = _SIZES[shape]
    generator = torch.Generator().manual_seed(1)

    def random(*size: int, kind: torch.dtype = dtype) -> torch.Tensor:
        return torch.rand(size, generator=generator).add(0.25).to(kind).to(device)

    x, y, vector = random(n, n), random(n, n), random(n)
    half, half_other = (random(n, n, kind=matrices) for _ in range(2))
    batch, batch_other = (random(8, n // 4, n // 4, kind=matrices) for _ in range(2))
    bias = random(n, kind=matrices)
    mask = (x > 0.7).to(device)
    index = torch.arange(0, n, 2).to(device)
    table = random(4 * n, 64)
    rstd = random(n, 1, kind=torch.float32)
    ops = torch.ops.aten

    def packet(name: str) -> Any:
        base, _, overload = name.partition(".")
        return getattr(getattr(ops, base), overload or "default")

    def bound(name: str, *args: Any) -> Call:
        op = packet(name)
        return lambda: op(*args)

    found: dict[str, Call] = {}
    for name in _UNARY:
        found[name] = bound(name, mask if name == "bitwise_not" else x)
    for name in ("_softmax", "_log_softmax"):
        found[name] = bound(name, x, -1, False)
    for name in _BINARY:
        found[name] = bound(name, x, y)
    for name in _SCALAR:
        found[name] = bound(name, x, 1.5)
    for name in _REDUCTIONS:
        found[name] = bound(name, x, [-1]) if name == "amax" else bound(name, x)
    found |= {
        "sum.dim_IntList": lambda: ops.sum.dim_IntList(x, [-1]),
        "mean.dim": lambda: ops.mean.dim(x, [-1]),
        "max.dim": lambda: ops.max.dim(x, -1),
        "min.dim": lambda: ops.min.dim(x, -1),
        "cumsum": lambda: ops.cumsum.default(x, -1),
        "mm": lambda: ops.mm.default(half, half_other),
        "bmm": lambda: ops.bmm.default(batch, batch_other),
        "addmm": lambda: ops.addmm.default(bias, half, half_other),
        "mv": lambda: ops.mv.default(x, vector),
        "dot": lambda: ops.dot.default(vector, vector),
        "native_layer_norm": lambda: ops.native_layer_norm.default(x, [n], vector, vector, 1e-5),
        "_fused_rms_norm": lambda: ops._fused_rms_norm.default(x, [n], vector, 1e-5),
        "_fused_rms_norm_backward": lambda: ops._fused_rms_norm_backward.default(
            y, x, [n], rstd, vector, [True, True]
        ),
        "embedding": lambda: ops.embedding.default(table, index),
        "index_select": lambda: ops.index_select.default(x, 0, index),
        "gather": lambda: ops.gather.default(x, 1, index.expand(n, -1)),
        "where.self": lambda: ops.where.self(mask, x, y),
        "masked_fill.Scalar": lambda: ops.masked_fill.Scalar(x, mask, 0.0),
        "cat": lambda: ops.cat.default([x, y]),
        "stack": lambda: ops.stack.default([x, y]),
        "clamp": lambda: ops.clamp.default(x, 0.3, 0.9),
        "triu": lambda: ops.triu.default(x),
        "tril": lambda: ops.tril.default(x),
        "topk": lambda: ops.topk.default(x, min(8, n)),
        "sort": lambda: ops.sort.default(x),
        "flip": lambda: ops.flip.default(x, [0]),
        "addcmul": lambda: ops.addcmul.default(x, x, y),
        "addcdiv": lambda: ops.addcdiv.default(x, x, y),
        "threshold_backward": lambda: ops.threshold_backward.default(x, y, 0.5),
        "silu_backward": lambda: ops.silu_backward.default(x, y),
        "gelu_backward": lambda: ops.gelu_backward.default(x, y),
        "tanh_backward": lambda: ops.tanh_backward.default(x, y),
        "sigmoid_backward": lambda: ops.sigmoid_backward.default(x, y),
        "_softmax_backward_data": lambda: ops._softmax_backward_data.default(x, y, -1, dtype),
        "fill_.Scalar": lambda: ops.fill_.Scalar(x, 0.5),
        "zeros": lambda: ops.zeros.default([n, n], dtype=dtype, device=device),
        "ones": lambda: ops.ones.default([n, n], dtype=dtype, device=device),
        "full": lambda: ops.full.default([n, n], 0.5, dtype=dtype, device=device),
        "zeros_like": lambda: ops.zeros_like.default(x),
        "ones_like": lambda: ops.ones_like.default(x),
        "full_like": lambda: ops.full_like.default(x, 0.5),
    }
    return found


def _declined(overload: str) -> int:
    return flagos.counters().get(f"aten::{overload}", {"fallbacks": 0})["fallbacks"]


def _seconds(call: Call, iterations: int) -> float:
    torch.accelerator.synchronize()
    start = time.perf_counter()
    for _ in range(iterations):
        call()
    torch.accelerator.synchronize()
    return (time.perf_counter() - start) / iterations


def measure(
    pattern: str = "*",
    rounds: int = 7,
    progress: Callable[[str, dict[str, Any]], None] | None = None,
    seconds: float = float("inf"),
    known: dict[str, dict[str, float]] | None = None,
    kept: Callable[[dict[str, dict[str, float]]], None] | None = None,
    classes: tuple[tuple[str, int], ...] = (("small", 200), ("large", 20)),
) -> dict[str, dict[str, float]]:
    """The ratio of FlagGems' time to the native one, for each overload and class.

    What is verified STRICT comes first, and what is known to be wrong is left out. `known` are ratios that are
    taken as they are. No overload is begun after `seconds`, and an interrupt (KeyboardInterrupt) ends it early.
    `kept` is told what there is after each overload. `classes` are those of `calls`, with how many in a row.
    """
    began = time.monotonic()
    found = dict(known or {})
    made = {shape: calls(shape) for shape, _ in classes}
    verdicts = tables.verdicts()
    names = [
        name
        for name in made[classes[0][0]]
        if matches(name, pattern)
        and name in implementations.registered()
        and implementations.usable(name)
        and not implementations.failed(name)
        and name not in found
    ]
    names.sort(key=lambda name: verdicts.get(name, {}).get("verdict") != tables.STRICT)
    told = progress or (lambda name, row: None)
    try:
        for index, name in enumerate(names):
            if time.monotonic() - began > seconds:
                told(f"{len(names) - index} overloads", {"shape": "all", "error": "no time left"})
                break
            ratios = {}
            for shape, iterations in classes:
                try:
                    ratios[shape] = _ratio(name, made[shape][name], rounds, iterations)
                    told(name, {"shape": shape, "ratio": ratios[shape]})
                except Exception as error:
                    # Reported. Without a measurement the overload is not routed by default.
                    said = f"{type(error).__name__}: {error}"[:200]
                    told(name, {"shape": shape, "error": said})
                    break
            # A measurement of one class only is dropped.
            if len(ratios) == len(classes):
                found[name] = {shape: round(ratio, 3) for shape, ratio in ratios.items()}
                if kept is not None:
                    kept(found)
    except KeyboardInterrupt:
        print("interrupted: what was measured is kept", file=sys.stderr)
    return found


def _ratio(name: str, call: Call, rounds: int, iterations: int) -> float:
    """The median time of FlagGems' calls over that of the native ones. Raises UnsupportedError for a declined call."""
    times: dict[str, list[float]] = {"vendor": [], implementations.BACKEND: []}
    declined = _declined(name)
    with torch.no_grad():
        for turn in range(rounds + 1):
            for selector in times if turn % 2 else reversed(times):
                with flagos.route({f"aten::{name}": selector}):
                    for _ in range(5):  # compiles and records anew
                        call()
                    spent = _seconds(call, iterations)
                if turn:
                    times[selector].append(spent)
    if _declined(name) > declined:
        raise flagos.UnsupportedError("FlagGems declines the call")
    return statistics.median(times[implementations.BACKEND]) / statistics.median(times["vendor"])


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos tune`."""
    parser = argparse.ArgumentParser(
        prog="flagos tune",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ops", default="*", help="shell patterns of overloads: 'add*,mm'")
    parser.add_argument("--rounds", type=at_least_one, default=7)
    parser.add_argument(
        "--seconds", type=not_negative, default=float("inf"), help="stop after so long"
    )
    parser.add_argument("--resume", action="store_true", help="continue the table that is there")
    parser.add_argument(
        "-o", "--out", type=Path, help="the table; by default where the plan reads it"
    )
    parser.add_argument("--json", action="store_true", help="print the table, too")
    options = parser.parse_args(arguments)
    if options.out is not None:
        output_files.require_writable(options.out, "table.json")
    if not any(implementations.usable(name) for name in implementations.registered()):
        reason = (
            implementations.missing()
            if not implementations.registered()
            else implementations.why_unusable()
        )
        print(f"error: FlagGems cannot be used: {reason}", file=sys.stderr)
        return 1
    kind = "speed"
    path = tables.path_for(kind, options.out, options.ops == "*")

    in_vain: set[str] = set()
    complete = True

    def told(name: str, row: dict[str, Any]) -> None:
        nonlocal complete
        if row["shape"] == "all":
            complete = False
        elif "error" in row:
            in_vain.add(name)
        what = f"{row['ratio']:.2f}" if "ratio" in row else row["error"]
        print(f"{name} ({row['shape']}): {what}", file=sys.stderr, flush=True)

    def kept(measured: dict[str, dict[str, float]]) -> None:
        if path is not None:
            tables.write(tables.partial(path), tables.table(measured))

    with one_interrupt() as interrupted:
        try:
            known = tables.continued(path, kind) if options.resume else {}
            with redirect_stdout(sys.stderr):  # FlagGems prints while it is imported
                measured = measure(options.ops, options.rounds, told, options.seconds, known, kept)
        except RuntimeError as error:
            print(f"error: {error}", file=sys.stderr)
            return 1
        if interrupted():
            table = tables.keep_partial(path, measured)
        else:
            table = tables.keep(path, measured, {*measured, *in_vain}, complete, kind)
    if options.json:
        print(json.dumps(table))
    else:
        fast = sum(max(ratios.values()) <= tables.AS_FAST for ratios in measured.values())
        print(f"{len(measured)} measured, {fast} of them no slower than the native kernels")
    return 0


if __name__ == "__main__":
    sys.exit(main())
