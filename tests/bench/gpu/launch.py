"""Launches from Rust on an NVIDIA GPU: whether FlagGems computes the same bits, and what it costs the host.

    python -m tests.bench.gpu.launch [--json FILE] [--rounds N] [--iterations N] [--ops NAME,...]

Each of FlagGems' functions is called on small cuda tensors with its launches from Python and from Rust, and
torch's own operator beside it, turn and turn about. Times are of submitting, without waiting for the device.
First each result is compared bit for bit: on the default stream, on another one, captured in a graph, and
with a number changed as the control that must differ. It ends with 1 when a comparison fails.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F

import torch_fl.launcher as launcher
from tests.bench.gpu.submit import submitted
from tests.bench.machine import driver, gpu, versions
from tests.bench.timing import Measured, geometric_mean, lines, measure

Call = Callable[[], Any]


def operators(gems: Any) -> dict[str, tuple[Call, Call]]:
    """FlagGems' function and torch's operator, by name."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(dtype).cuda()

    x, y, w = random(64, 64), random(64, 64), random(64)
    half, other = (random(64, 64, dtype=torch.bfloat16) for _ in range(2))
    batch, others = (random(4, 64, 64, dtype=torch.bfloat16) for _ in range(2))
    table, tokens, mask = random(128, 64), torch.arange(32).cuda(), x > 0
    positive = x.abs() + 1
    return {
        "add": (lambda: gems.add(x, y), lambda: torch.add(x, y)),
        "mul": (lambda: gems.mul(x, y), lambda: torch.mul(x, y)),
        "silu": (lambda: gems.silu(x), lambda: F.silu(x)),
        "gelu": (lambda: gems.gelu(x), lambda: F.gelu(x)),
        "softmax": (lambda: gems.softmax(x, -1), lambda: torch.softmax(x, -1)),
        "rms_norm": (lambda: gems.rms_norm(x, [64], w), lambda: F.rms_norm(x, (64,), w)),
        "layer_norm": (
            lambda: gems.layer_norm(x, [64], w, w)[0],
            lambda: F.layer_norm(x, (64,), w, w),
        ),
        "sum": (lambda: gems.sum(x), lambda: torch.sum(x)),
        "mean": (lambda: gems.mean(x), lambda: torch.mean(x)),
        "exp": (lambda: gems.exp(x), lambda: torch.exp(x)),
        "mm": (lambda: gems.mm(half, other), lambda: torch.mm(half, other)),
        "bmm": (lambda: gems.bmm(batch, others), lambda: torch.bmm(batch, others)),
        "cat": (lambda: gems.cat([x, y]), lambda: torch.cat([x, y])),
        "embedding": (lambda: gems.embedding(table, tokens), lambda: F.embedding(tokens, table)),
        "cos": (lambda: gems.cos(x), lambda: torch.cos(x)),
        "sin": (lambda: gems.sin(x), lambda: torch.sin(x)),
        "rsqrt": (lambda: gems.rsqrt(positive), lambda: torch.rsqrt(positive)),
        "where": (lambda: gems.where_self(mask, x, y), lambda: torch.where(mask, x, y)),
    }


def bits(value: Any) -> list[bytes]:
    """The bytes of every tensor of a result."""
    values = value if isinstance(value, tuple | list) else [value]
    flat = (one.detach().contiguous().view(-1).view(torch.uint8).cpu() for one in values)
    return [one.numpy().tobytes() for one in flat]


def from_python(call: Call) -> Any:
    """The result with FlagGems' own launches."""
    launcher.uninstall()
    try:
        return call()
    finally:
        launcher.install()


def captured(call: Call) -> Any:
    """The result of a graph of the call, replayed."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for value in result if isinstance(result, tuple | list) else [result]:
        value.zero_()
    graph.replay()
    torch.cuda.synchronize()
    return result


def check(call: Call) -> dict[str, Any]:
    """Whether launches from Rust compute the bits that launches from Python compute."""
    from_python(call)
    expected = bits(from_python(call))
    found: dict[str, Any] = {}
    launcher.reset_statistics()
    for _ in range(3):
        result = call()
    before = launcher.statistics()["native"]
    result = call()
    found["launches"] = launcher.statistics()["native"] - before
    found["fallback"] = launcher.statistics()["fallback"]
    found["same"] = bits(result) == expected
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        # Work ahead of it in this stream, so that a launch on another one would come too early.
        torch.cuda._sleep(1_000_000)
        result = call()
    side.synchronize()
    found["same on a stream"] = bits(result) == expected
    found["same in a graph"] = bits(captured(call)) == expected
    changed = [one.clone() for one in (result if isinstance(result, tuple | list) else [result])]
    changed[0].view(-1)[0] += 1
    found["a change is seen"] = bits(changed) != expected
    checks = ("same", "same on a stream", "same in a graph", "a change is seen")
    found["passed"] = found["launches"] > 0 and all(found[name] for name in checks)
    return found


def measured(flaggems: Call, own: Call, rounds: int, iterations: int) -> Measured:
    """Nanoseconds of submitting, in three ways."""

    def python() -> float:
        launcher.uninstall()
        flaggems()
        spent = submitted(flaggems, iterations)
        launcher.install()
        return spent

    def rust() -> float:
        flaggems()
        return submitted(flaggems, iterations)

    sides = {"rust": rust, "python": python, "torch": lambda: submitted(own, iterations)}
    return measure(sides, rounds, collected=False)


def launch_alone(rounds: int, iterations: int) -> Measured:
    """One kernel by `kernel[grid](...)`, from Python and from Rust, in nanoseconds."""
    from adapters.torch.tests.launcher import kernels

    x, y, out = (torch.randn(64, device="cuda") for _ in range(3))
    call: Call = lambda: kernels.add[(3,)](x, y, out, 48, BLOCK=64)  # noqa: E731
    for _ in range(4):
        call()
    return measured(call, lambda: torch.add(x, y, out=out), rounds, iterations)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--iterations", type=int, default=200)
    parser.add_argument("--ops", default="", help="these only, separated by commas")
    parser.add_argument("--json", type=Path, help="where to write the figures")
    options = parser.parse_args()
    import flag_gems

    if left := launcher.install():
        sys.exit(f"nothing was measured: {left}")
    table = operators(flag_gems)
    wanted = [name for name in options.ops.split(",") if name] or list(table)
    if unknown := set(wanted) - table.keys():
        sys.exit(f"no such operators: {', '.join(sorted(unknown))}; there are {', '.join(table)}")
    checked: dict[str, dict[str, Any]] = {}
    timed: dict[str, Measured] = {}
    with torch.no_grad():
        alone = launch_alone(options.rounds, options.iterations)
        for name in wanted:
            flaggems, own = table[name]
            try:
                checked[name] = check(flaggems)
                timed[name] = measured(flaggems, own, options.rounds, options.iterations)
            except Exception as error:
                said = f"{type(error).__name__}: {error}"[:300]
                checked[name] = {"passed": False, "error": said}
    print(*lines({"one launch": alone, **timed}, "µs", "operator", 1e-3, 2), sep="\n")
    for name, found in checked.items():
        if not found["passed"]:
            print(f"{name} FAILED: {found}")
    summary = {
        f"{a} over {b}": geometric_mean(one.ratio(a, b).median for one in timed.values())
        for a, b in (("python", "rust"), ("rust", "torch"), ("python", "torch"))
        if timed
    }
    for what, mean in summary.items():
        print(f"geometric mean, {what}: {mean:.2f}")
    print(f"statistics: {launcher.statistics()}")
    if options.json:
        machine = {"gpu": gpu(), "driver": driver()}
        machine |= versions("torch", "triton", "flag_gems", "flagos", "torch_fl")
        operators_found = {
            name: {**found, **(timed[name].to_json() if name in timed else {})}
            for name, found in checked.items()
        }
        figures = {"machine": machine, "launch": alone.to_json(), "operators": operators_found}
        figures["summary"] = summary
        options.json.write_text(json.dumps(figures, indent=1))
    failed = [name for name, found in checked.items() if not found["passed"]]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
