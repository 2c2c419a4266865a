"""The time of LightX2V's 8-bit linear layers on an NVIDIA device, and of their parts: Triton's kernels beside torch's.

    python -m tests.bench.gpu.quantized [--rounds N] [--tiles] [--json [FILE]]

At the three linear layers of Wan 2.1 1.3B with 32,760 tokens, in bfloat16:

    quantize   a token in 8 bits: torch's operators (the formula), and the kernel
    scale      what follows a product of int8: torch's operators, and the kernel
    product    int8 times int8 with that: torch._int_mm and the kernel, and the kernel that does both;
               with --tiles also by other tiles, beside the one that would be chosen
    layer      fp8_linear and int8_linear as the plan serves them, by torch's operators, and addmm in bfloat16

Every side's result is compared with the first one's, bit for bit (of layers: fp8's and int8's among themselves).
Then sides take turns in one process: the time the device needs (replays of a CUDA graph of several calls, so
that the host is not in it), least / median / greatest of the rounds, and ratios to the first side round by
round. Exits with 1 when a result differs. About half a minute on one H200.

Without a device `TRITON_INTERPRET=1 python -m tests.bench.gpu.quantized --device cpu --small` shows that the program
is whole: what Triton's interpreter rounds is not compared, and products are left out.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import flagos
from lightx2v_fl import operators
from lightx2v_fl.cuda import kernels
from lightx2v_fl.operators import quantized
from tests.bench import machine
from tests.bench.timing import (
    Spread,
    measure,
    microseconds_per_replay,
    nanoseconds_per_call,
)

Call = Callable[[], Any]
CALLS = 5
TOKENS = 32760
SHAPES = [(1536, 1536), (1536, 8960), (8960, 1536)]  # in, out
ON_CPU = ("quantize", "scale")
SMALL_TOKENS, SMALL_SHAPES = 4, [(32, 16), (16, 48)]
DTYPES = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
FORMULA = {"fp8": quantized.quantize_fp8, "int8": quantized.quantize_int8}
TILES = [
    kernels.Tile(128, 256, 128, warps=8, stages=3),
    kernels.Tile(128, 256, 128, warps=8, stages=4),
    kernels.Tile(128, 256, 256, warps=8, stages=2),
    kernels.Tile(256, 128, 128, warps=8, stages=4),
    kernels.Tile(128, 128, 128, warps=4, stages=3),
    kernels.Tile(128, 128, 128, warps=8, stages=3),
    kernels.Tile(128, 128, 256, warps=4, stages=2),
    kernels.Tile(64, 256, 128, warps=4, stages=2),
]


class Layer:
    """A linear layer, its activations, and all that is between the two."""

    def __init__(self, tokens: int, inner: int, outer: int, device: str) -> None:
        def drawn(*shape: int, by: float = 1.0) -> Tensor:
            return (torch.randn(*shape) * by).to(device, torch.bfloat16)

        self.x, self.bias = drawn(tokens, inner), drawn(outer)
        self.weight = drawn(outer, inner, by=inner**-0.5)
        self.eight = {name: formula(self.weight) for name, formula in FORMULA.items()}
        self.q, self.scale = quantized.quantize_int8(self.x)
        self.product = torch._int_mm(self.q, self.eight["int8"][0].t())


def parts(layer: Layer, tiles: bool) -> Iterator[tuple[str, dict[str, Call]]]:
    """Each part of a layer with its sides; the first side is the reference."""
    x, kind = layer.x, layer.x.dtype
    for name, dtype in DTYPES.items():
        yield (
            f"quantize {name} {x.shape[1]}",
            {
                "torch": lambda n=name: FORMULA[n](x),
                "triton": lambda d=dtype: kernels.quantize(x, d),
            },
        )
    weight, of_columns = layer.eight["int8"]
    scales = (layer.scale, of_columns, layer.bias)
    yield (
        f"scale {weight.shape[0]}",
        {
            "torch": lambda: quantized.scaled(layer.product, *scales).to(kind),
            "triton": lambda: kernels.scale_product(layer.product, *scales, kind),
        },
    )
    whole = (layer.q, layer.scale, weight.t(), of_columns, layer.bias, kind)
    sides: dict[str, Call] = {
        "_int_mm, scaled": lambda: kernels.scale_product(
            torch._int_mm(layer.q, weight.t()), *scales, kind
        ),
        "triton": lambda: kernels.int8_product(*whole),
    }
    for tile in TILES if tiles else []:
        sides["x".join(map(str, tile))] = lambda t=tile: kernels.int8_product(*whole, tile=t)
    yield f"product {weight.shape[1]}x{weight.shape[0]}", sides


def layers(layer: Layer) -> Iterator[tuple[str, dict[str, Call]]]:
    """The operators. The plan is asked when a call is captured, or compared."""

    def served(name: str, by: str) -> Call:
        operator = getattr(operators, f"{name}_linear")
        weight, scale = layer.eight[name]

        def call() -> Any:
            with flagos.route({operator.name: f"impl:{by}.{name}_linear"}):
                return operator(layer.x, weight.t(), scale, layer.bias)

        return call

    sides: dict[str, Call] = {"bf16": lambda: torch.addmm(layer.bias, layer.x, layer.weight.t())}
    for name in DTYPES:
        sides |= {f"{name} {by}": served(name, by) for by in ("triton", "torch")}
    yield f"layer {layer.x.shape[1]}x{layer.bias.shape[0]}", sides


def bits(result: Any) -> list[Tensor]:
    """The tensors of a result, those of 8 bits as integers, which torch can compare."""
    found = result if isinstance(result, tuple) else (result,)
    return [part.view(torch.int8) if part.dtype in DTYPES.values() else part for part in found]


def same(one: Any, other: Any) -> bool:
    return all(torch.equal(a, b) for a, b in zip(bits(one), bits(other), strict=True))


def timed(call: Call, device: str) -> Callable[[], float]:
    """Microseconds of the device (on the CPU, of the clock) for one call."""
    if device == "cpu":
        return lambda: nanoseconds_per_call(call, 1) / 1e3
    for _ in range(2):  # compilation and caches come before the capture
        call()
    torch.flagos.synchronize()
    graph = torch.flagos.Graph()
    with torch.flagos.graph(graph):
        for _ in range(CALLS):
            call()
    return lambda: microseconds_per_replay(graph) / CALLS


def compare(sides: dict[str, Call], whole_layers: bool) -> list[str]:
    """The sides that compute something else than they should."""
    results = {name: call() for name, call in sides.items()}
    if not whole_layers:
        first = next(iter(results.values()))
        return [name for name, result in results.items() if not same(first, result)]
    exact = results["bf16"].float()
    wrong = []
    for name, result in results.items():
        error = ((result.float() - exact).norm() / exact.norm()).item()
        partner = f"{name.split()[0]} triton" if name.endswith("torch") else name
        if error > 0.05 or not same(result, results[partner]):
            wrong.append(name)
    return wrong


def measured(what: str, sides: dict[str, Call], rounds: int, device: str) -> dict[str, Any]:
    """Times, ratios to the first side, and who was wrong."""
    wrong = compare(sides, what.startswith("layer")) if device != "cpu" else []
    graphs = {name: timed(call, device) for name, call in sides.items()}
    taken = measure(graphs, rounds, warmup=2)
    return {"what": what, **taken.to_json(), "wrong": wrong}


def show(result: dict[str, Any]) -> None:
    """For people."""
    print(result["what"])
    for name, side in result["sides"].items():
        ratio = result["ratios"].get(name)
        shown = "" if ratio is None else Spread(**ratio).shown(3)
        wrong = "  WRONG" if name in result["wrong"] else ""
        print(f"  {name:<20}{Spread(**side).shown(1):>32} us{shown:>30}{wrong}")


def main() -> int:
    """0 when every side computed the same."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10, help="interleaved rounds (default: 10)")
    parser.add_argument("--tiles", action="store_true", help="the int8 product by other tiles, too")
    parser.add_argument("--device", default="flagos", choices=("flagos", "cpu"))
    parser.add_argument("--small", action="store_true", help="small tensors")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="the numbers, into FILE or printed"
    )
    options = parser.parse_args()
    if options.device == "flagos" and not torch.cuda.is_available():
        parser.error("torch finds no CUDA device; --device cpu --small shows that the program runs")
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    about = machine.versions("flagos", "torch-fl", "lightx2v-fl", "torch", "triton")
    if options.device == "flagos":
        about = {"gpu": machine.gpu(), "driver": machine.driver(), **about}
    begin, results = time.monotonic(), []
    tokens, shapes = (SMALL_TOKENS, SMALL_SHAPES) if options.small else (TOKENS, SHAPES)
    done: set[str] = set()
    for inner, outer in shapes:
        layer = Layer(tokens, inner, outer, options.device)
        found = [*parts(layer, options.tiles), *layers(layer)]
        for what, sides in found:
            if what in done or (options.device == "cpu" and not what.startswith(ON_CPU)):
                continue
            done.add(what)
            results.append(measured(what, sides, options.rounds, options.device))
            passed = time.monotonic() - begin
            print(f"{passed:6.1f} s  {what}", file=sys.stderr, flush=True)
    if options.json != "-":
        print(", ".join(f"{name} {value}" for name, value in about.items()))
        for result in results:
            show(result)
    if options.json:
        text = json.dumps({"about": about, "tokens": tokens, "results": results}, indent=1)
        print(text) if options.json == "-" else Path(options.json).write_text(text + "\n")
    return 1 if any(result["wrong"] for result in results) else 0


if __name__ == "__main__":
    sys.exit(main())
