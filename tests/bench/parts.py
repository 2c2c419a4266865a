"""Where the instructions of a step go, on the CPU and on flagos: `python -m tests.bench.parts`.

    python -m tests.bench.parts                     # all programs, a table for each
    python -m tests.bench.parts mlp --steps 5 --json
    python -m tests.bench.parts mlp --functions 30  # and the functions that cost flagos most
    python -m tests.bench.parts mlp --graphs        # flagos without and with automatic graphs

Each program runs twice in a process of its own under valgrind's callgrind, which counts instructions and is not
disturbed by other work: two runs differ by less than a thousandth. Each function's own instructions count for one part,
which is told by the library it is in and by its name. Where a function was inlined, its instructions are those of the
function around it. Needs valgrind with its headers, and a C compiler. The process is some fifty times as slow as alone.

The host computes the kernels on both sides, so that what flagos adds is what it adds on any chip.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.bench import machine

ROOT = Path(__file__).parents[2]
SIDES = ("cpu", "flagos", "graphs")
"""What a step runs on: flagos with automatic graphs is `graphs`."""
UNCOUNTED = {"cpu": 3, "flagos": 3, "graphs": 40}
"""Steps before those that are counted."""

OTHER = "other"
PARTS: tuple[tuple[str, str, str], ...] = (
    # part, pattern of the library's name, pattern of the function's name
    ("flagos: graphs", r"_shims/|/_C\.", r"following::"),
    ("flagos: allocator and core", r"/_core\.", r""),
    (
        "flagos: lists",
        r"_shims/|/_C\.",
        r"::bound$|convert_argument|Directory|look_up|sherwood|List<at::Tensor>|WrittenList|TypedLists",
    ),
    ("flagos: alias", r"_shims/|/_C\.", r"[Aa]lias|tensor_over|twin|native_storage|bind|argument"),
    ("flagos: wrap", r"_shims/|/_C\.", r"wrap|result|flagos_storage|sync_|view_of"),
    ("flagos: allocator and core", r"_shims/|/_C\.", r"alloc|device|stream|guard|Guard"),
    ("flagos: routes and calls", r"_shims/|/_C\.", r""),
    ("python", r"libpython|/python3?[.\d]*$|\.cpython-.*\.so", r""),
    ("torch: bindings", r"libtorch_python|_C\.cpython", r""),
    (
        "memory",
        r"libc\.so|libc-|libstdc|jemalloc|vgpreload",
        r"alloc|free|operator (new|delete)|memset|memcpy|memmove",
    ),
    ("torch: autograd", r"libtorch", r"torch::autograd|VariableType|AutogradMeta|at::.*_backward$"),
    (
        "kernels",
        r"libtorch|libmkl|libgomp|libm\.so|libm-|libdnnl|libopenblas",
        r"at::native|mkl|dnnl|gemm|gemv|Vectorized|parallel|TensorIterator|at::meta|structured_|bli_|cpu_kernel",
    ),
    (
        "torch: tensors and storages",
        r"libtorch|libc10",
        r"TensorImpl|StorageImpl|intrusive_ptr|empty|DataPtr|SizesAndStrides|VersionCounter|TensorBase|CPUAllocator",
    ),
    ("torch: dispatch", r"libtorch|libc10", r""),
    (OTHER, r"", r""),
)
"""The first row that fits a function names its part."""


# ------------------------------------------------------------------------------- programs


def _mlp(device: str) -> Callable[[], object]:
    import torch

    torch.manual_seed(0)
    layers = [layer for _ in range(6) for layer in (torch.nn.Linear(64, 64), torch.nn.ReLU())]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    inputs = torch.randn(32, 64).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()

    return step


def _clipped(device: str) -> Callable[[], object]:
    import torch

    torch.manual_seed(0)
    model = torch.nn.LSTM(32, 32, num_layers=2, batch_first=True).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    inputs = torch.randn(4, 8, 32).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(inputs)[0].sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _qwen3() -> Any:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=256,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=128,
    )
    return Qwen3ForCausalLM(config)


def _train(device: str) -> Callable[[], object]:
    import torch

    model = _qwen3().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    tokens = torch.randint(0, 256, (2, 16)).to(device)

    def step() -> None:
        optimizer.zero_grad()
        model(input_ids=tokens, labels=tokens).loss.backward()
        optimizer.step()

    return step


def _generate(device: str) -> Callable[[], object]:
    import torch

    model = _qwen3().to(device).eval()
    tokens = torch.randint(0, 256, (1, 8)).to(device)
    return lambda: model.generate(tokens, max_new_tokens=4, do_sample=False, pad_token_id=0)


def _views(device: str) -> Callable[[], object]:
    import torch

    x = torch.ones(8, 8).to(device)

    def step() -> None:
        for _ in range(50):
            x.view(64).view(8, 8).transpose(0, 1)[0].unsqueeze(0).expand(4, 8)

    return step


PROGRAMS: dict[str, tuple[str, Callable[[str], Callable[[], object]]]] = {
    "mlp": ("six layers of width 64, AdamW by lists", _mlp),
    "lstm": ("an LSTM of two layers, clipped gradients, SGD", _clipped),
    "train": ("a Qwen3 of four layers, a training step with AdamW", _train),
    "generate": ("the same, four tokens written", _generate),
    "views": ("300 views", _views),
}


def _run(program: str, side: str, steps: int) -> None:
    """In the process that is watched."""
    import torch

    import torch_fl  # noqa: F401 - both sides have it loaded

    marks = ctypes.CDLL(os.environ["BENCH_MARKS"])
    if not marks.bench_is_watched():
        raise SystemExit(
            "this process is not watched by valgrind: it is started by `python -m tests.bench.parts`"
        )
    torch.set_num_threads(1)
    step = PROGRAMS[program][1]("cpu" if side == "cpu" else "flagos")
    with torch.flagos.graphs.auto(side == "graphs"):
        for _ in range(UNCOUNTED[side]):
            step()
        marks.bench_begin()
        for _ in range(steps):
            step()
        marks.bench_end()


# ------------------------------------------------------------------------------- counting


@dataclass(frozen=True)
class Counted:
    """Instructions of one step."""

    by_part: Counter[str]
    by_function: Counter[tuple[str, str]]
    """By part and function."""

    @property
    def all(self) -> int:
        return sum(self.by_part.values())


def part_of(library: str, function: str) -> str:
    """The part that a function of a library counts for."""
    # Without the types of its parameters, which are of other parts.
    name = function.replace("(anonymous namespace)::", "").partition("(")[0]
    for part, of_library, of_function in PARTS:
        if re.search(of_library, library) and re.search(of_function, name):
            return part
    return OTHER


def own_costs(lines: Iterable[str]) -> Iterator[tuple[str, str, int]]:
    """(library, function, instructions) of each line of costs in callgrind's format, without those of called functions.

    The format: valgrind's manual, "Callgrind Format Specification". Names are given once, as `(number) name`.
    """
    names: dict[tuple[str, str], str] = {}
    library = function = ""
    skip = False

    def named(kind: str, text: str) -> str:
        number, _, name = text.partition(" ")
        if name:
            names[kind, number] = name
        return names.get((kind, number), text)

    for line in lines:
        head, is_name, text = line.rstrip("\n").partition("=")
        if is_name and head in ("ob", "cob"):
            name = named("ob", text)
            library = name if head == "ob" else library
        elif is_name and head in ("fn", "cfn"):
            name = named("fn", text)
            function = name if head == "fn" else function
        elif is_name and head == "calls":
            skip = True
        elif line[:1].isdigit() or line[:1] in "+-*":
            if not skip:
                yield library, function, int(line.split()[1])
            skip = False


def count(program: str, side: str, steps: int, marks: Path) -> Counted:
    """Runs a program under callgrind. Raises RuntimeError with what it printed if it fails."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "callgrind.out"
        command = [
            *(
                "valgrind",
                "--tool=callgrind",
                "--instr-atstart=no",
                "--compress-pos=no",
                "--compress-strings=yes",
            ),
            f"--callgrind-out-file={out}",
            *(
                sys.executable,
                "-m",
                "tests.bench.parts",
                program,
                "--in-process",
                side,
                "--steps",
                str(steps),
            ),
        ]
        environment = {
            **os.environ,
            "BENCH_MARKS": str(marks),
            "FLAGOS_VENDOR": "host",
            "PYTHONHASHSEED": "0",
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"{program} on {side} ended with {done.returncode}:\n{done.stderr[-2000:]}"
            )
        by_part: Counter[str] = Counter()
        by_function: Counter[tuple[str, str]] = Counter()
        with out.open(errors="replace") as lines:
            for library, function, instructions in own_costs(lines):
                part = part_of(library, function)
                by_part[part] += instructions
                by_function[part, function] += instructions
    if not by_part:
        raise RuntimeError(f"callgrind counted nothing of {program} on {side}")
    return Counted(
        Counter({part: instructions // steps for part, instructions in by_part.items()}),
        Counter({key: instructions // steps for key, instructions in by_function.items()}),
    )


def _marks() -> Path:
    """The compiled marks. Raises SystemExit with what is missing."""
    if shutil.which("valgrind") is None:
        raise SystemExit("valgrind is not installed (on Debian: apt-get install valgrind)")
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("there is no C compiler (on Debian: apt-get install gcc)")
    library = ROOT / "target" / "bench" / "callgrind.so"
    library.parent.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).with_name("callgrind.c")
    done = subprocess.run(
        [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise SystemExit(
            f"{source.name} was not compiled; is valgrind's header installed?\n{done.stderr}"
        )
    return library


# ------------------------------------------------------------------------------- showing


def shown(program: str, counted: dict[str, Counted], functions: int) -> Iterator[str]:
    """A table in Markdown."""
    (first, one), (second, other) = counted.items()
    yield f"### {program}: {PROGRAMS[program][0]}"
    yield ""
    yield f"| part | {first} | {second} | difference | of the step with {first} |"
    yield "|:--|--:|--:|--:|--:|"
    order = sorted(
        {*one.by_part, *other.by_part}, key=lambda part: one.by_part[part] - other.by_part[part]
    )
    for part in order:
        before, after = one.by_part[part], other.by_part[part]
        more = after - before
        yield f"| {part} | {before:,} | {after:,} | {more:+,} | {more / one.all:+.2%} |"
    ratio = other.all / one.all
    yield f"| **all** | {one.all:,} | {other.all:,} | {other.all - one.all:+,} | **{ratio:.4f}** |"
    if functions:
        yield ""
        more_by = Counter(other.by_function)
        more_by.subtract(one.by_function)
        for (part, function), instructions in more_by.most_common(functions):
            yield f"- {instructions:+,} {part}: `{function[:110]}`"
    yield ""


def main(arguments: list[str]) -> int:
    """Runs the programs that are named, or all."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.parts",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("programs", nargs="*", metavar="PROGRAM", help=", ".join(PROGRAMS))
    parser.add_argument("--steps", type=int, default=3, help="counted steps (default: %(default)s)")
    parser.add_argument(
        "--functions", type=int, default=0, metavar="N", help="also the N functions with most more"
    )
    parser.add_argument(
        "--graphs", action="store_true", help="flagos without and with automatic graphs"
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--in-process", choices=SIDES, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    for name in given.programs:
        if name not in PROGRAMS:
            parser.error(f"there is no program {name!r}; there are {', '.join(PROGRAMS)}")
    if given.steps < 1:
        parser.error(f"--steps is {given.steps}, and at least one step is counted")
    if given.in_process:
        _run(given.programs[0], given.in_process, given.steps)
        return 0
    marks = _marks()
    results: dict[str, Any] = {}
    if not given.json:
        versions = ", ".join(
            f"{name} {version}" for name, version in machine.versions("torch", "torch-fl").items()
        )
        print(f"Instructions of one step, by callgrind; {versions}\n", flush=True)
    for program in given.programs or PROGRAMS:
        counted = {}
        for side in SIDES[1:] if given.graphs else SIDES[:2]:
            print(f"counting {program} on {side}...", file=sys.stderr, flush=True)
            counted[side] = count(program, side, given.steps, marks)
        if given.json:
            results[program] = {
                side: {"all": each.all, "parts": dict(each.by_part.most_common())}
                for side, each in counted.items()
            }
        else:
            print("\n".join(shown(program, counted, given.functions)), flush=True)
    if given.json:
        print(
            json.dumps(
                {"versions": machine.versions("torch", "torch-fl"), "programs": results}, indent=1
            )
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
