"""The command line of `flagos accuracy`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shlex
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from flagos.cli import command_line
from flagos.cli.output import CommandError, print_json
from torch_fl_tools.accuracy import report
from torch_fl_tools.accuracy.settings import Settings
from torch_fl_tools.bisect.command import count, current_plan, interruptible, names, seconds, tell
from torch_fl_tools.bisect.session import Check, Session
from torch_fl_tools.bisect.state import State, fingerprint

if TYPE_CHECKING:
    from torch_fl_tools.accuracy.gate import Options

_DESCRIPTION = """\
Judges the routes of a program by what it yields: whether they are as accurate as the vendor's native kernels are.

The program runs on native kernels, again with other orders of summation and other roundings, which shows by how much
right kernels differ, and on the routes of the configuration. Outputs of models, losses, logits, tokens and what the
program marks are compared. Beyond a multiple of native's own noise the gate fails, and the operators and their call
are searched as by flagos bisect.
"""

_EXAMPLES = """\
examples:
  $ FLAGOS_FLAGGEMS=all flagos accuracy -- python generate.py
  $ flagos accuracy --multiple 5 --no-bisect -- python train.py
  $ flagos accuracy --score task:accuracy -- python evaluate.py   # def accuracy(outputs): return 0.93
  $ flagos accuracy --only 'loss' -- python train.py              # nothing but the losses of the steps
  $ flagos accuracy --model Qwen3-0.6B --text book.txt            # a causal model of transformers, on a text

Any program is observed as it is. torch.flagos.mark("name", tensor) adds an output.

The status is 0 if the routes are as accurate as native kernels, and 1 if not or if that cannot be judged.
docs/accuracy.md has the formulas, with their reasons.
"""

_MIB = 1 << 20
_PREFIX = "flagos-accuracy-"


def main(arguments: list[str]) -> int:
    """Run the command."""
    own, given = command_line.split(arguments)
    options = _parser().parse_args(own)
    command = _command(options, given)
    with _torch_alone():  # the device is for the program's processes
        from torch_fl_tools.accuracy.gate import Gate
    asked = _asked(options)
    check = Check(
        timeout=options.timeout,
        random=options.random,
        exclude=options.exclude,
        seed=options.seed,
    )
    with interruptible():
        about = fingerprint(command, {**asdict(check), "accuracy": asdict(asked)}, current_plan())
        # Modules that the program imports may have changed since: nothing is taken from an earlier run unasked.
        folder = options.state or Path(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=".")).name)
        state = State(folder, json.loads(json.dumps(about)))
        with state.opened():
            tell(f"comparing in {folder}: {shlex.join(command)}")
            session = Session(command, check, state, tell, options.max_runs)
            try:
                with _torch_alone():
                    gate = Gate(session, asked, tell)
                result = gate.run()
            except KeyboardInterrupt:
                tell(f"interrupted: the same command with --state {folder} goes on from here")
                raise
    if options.json:
        print_json({**result.as_dict(), "state": str(folder)})
    else:
        print("\n".join(report.lines(result, str(folder))))
    return 0 if result.passes else 1


def _command(options: argparse.Namespace, given: list[str] | None) -> list[str]:
    """The program: the one behind `--`, or that of a model and a text."""
    if (options.model is None) != (options.text is None):
        raise CommandError(
            "--model and --text belong together", "name a model's folder and a file with a text"
        )
    if options.model is None:
        if given:
            return given
        raise CommandError(
            "no program is named", "name one behind --: flagos accuracy -- python train.py"
        )
    if given:
        raise CommandError(
            "--model and --text are a program of their own", "leave the one behind -- out"
        )
    if importlib.util.find_spec("transformers") is None:
        raise CommandError("--model needs transformers", "install it: pip install transformers")
    if not (options.model / "config.json").is_file():
        raise CommandError(
            f"{options.model} is no folder of a model: it has no config.json",
            "name the folder that save_pretrained wrote",
        )
    if not options.text.is_file():
        raise CommandError(f"{options.text} is no file", "name a file with a text")
    words = [str(options.model), str(options.text), str(options.tokens), options.dtype]
    return [sys.executable, "-m", "torch_fl_tools.accuracy.text", *words]


def _asked(options: argparse.Namespace) -> Options:
    from torch_fl_tools.accuracy.gate import Options

    settings = Settings(
        tensor_bytes=options.tensor_mib * _MIB,
        run_bytes=options.run_mib * _MIB,
        only=options.only,
    )
    return Options(
        multiple=options.multiple,
        roundings=options.roundings,
        settings=settings,
        score=options.score,
        score_within=options.score_within,
        bisect=not options.no_bisect,
    )


@contextmanager
def _torch_alone() -> Iterator[None]:
    """Within this, torch is imported without the device."""
    name = "TORCH_DEVICE_BACKEND_AUTOLOAD"
    before = os.environ.get(name)
    os.environ[name] = "0"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flagos accuracy",
        usage="flagos accuracy [options] -- PROGRAM ...",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add(
        "--multiple",
        type=_factor,
        default=4.0,
        metavar="M",
        help="of native's noise (default: 4)",
    )
    add(
        "--roundings",
        type=count,
        default=3,
        metavar="N",
        help="runs that round otherwise (default: 3)",
    )
    add("--no-bisect", action="store_true", help="do not search for the operators")
    add(
        "--only",
        type=names,
        default="",
        metavar="NAMES",
        help="compare these outputs: 'loss,*logits'",
    )
    add("--score", metavar="MODULE:FUNCTION", help="a task's score of a run's outputs")
    add(
        "--score-within",
        type=_amount,
        default=0.0,
        metavar="X",
        help="what a score may always differ by (default: 0)",
    )
    add("--model", type=Path, metavar="FOLDER", help="a causal model of transformers, with --text")
    add("--text", type=Path, metavar="FILE", help="what the model reads")
    add("--tokens", type=count, default=4096, metavar="N", help="of the text (default: 4096)")
    add(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16"),
        help="of the model",
    )
    add("--timeout", type=seconds, metavar="SECONDS", help="a run that takes longer fails")
    add("--random", action="store_true", help="route operators that draw random numbers, too")
    add(
        "--exclude",
        type=names,
        default="",
        metavar="OPS",
        help="these stay native: 'mm,*layer_norm*'",
    )
    add("--seed", type=int, default=0, help="of torch, random and numpy (default: 0)")
    add("--tensor-mib", type=count, default=16, metavar="N", help="kept of a tensor (default: 16)")
    add("--run-mib", type=count, default=512, metavar="N", help="kept of a process (default: 512)")
    add("--max-runs", type=count, default=100, metavar="N", help="give up after N (default: 100)")
    add("--state", type=Path, metavar="DIR", help="where the runs are kept (default: a new folder)")
    add("--json", action="store_true", help="print one JSON value instead of text")
    return parser


def _factor(text: str) -> float:
    value = float(text)
    if not 1 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not one or more")
    return value


def _amount(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not zero or more")
    return value
