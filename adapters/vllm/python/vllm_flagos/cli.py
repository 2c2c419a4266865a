"""``flagos vllm``: checks a vLLM configuration, and verifies FlagGems' kernels for vLLM."""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stdout
from fnmatch import fnmatchcase
from importlib import import_module
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagos.cli.output import CommandError, add_command, print_json
from vllm_flagos import activation

if TYPE_CHECKING:
    from vllm_flagos import rules

_CHECK = """
Takes the arguments of `vllm serve`, reads the model's configuration (not its weights), and lists what flagos does not
serve and what vLLM itself refuses. Exits with 1 if there is something. Our own options come before the model.

examples:
  $ flagos vllm check Qwen/Qwen3-0.6B --tensor-parallel-size 2
  $ flagos vllm check --json Qwen/Qwen3-30B-A3B --quantization awq
  --quantization awq: flagos has no kernels for it; write one of fp8, ..., or take weights without quantization
"""


_VERIFY = """
Compares FlagGems' kernels for vLLM's operators with the references, at sizes of models, and writes the verdicts of this
chip beside those of `flagos verify`. With FLAGOS_FLAGGEMS=verified the kernels that are STRICT serve vLLM. The command
takes minutes.

examples:
  $ flagos vllm verify
  $ flagos vllm verify --ops '_moe_C::*' --cases 4     # some operators: prints, and writes no table
"""
_LONGEST = 400


def parser() -> argparse.ArgumentParser:
    """The command line, with the command below it."""
    result = argparse.ArgumentParser(
        prog="flagos vllm",
        description="Checks a vLLM configuration, or verifies FlagGems' kernels for vLLM.",
        epilog="`flagos vllm check --help` and `flagos vllm verify --help` show examples.",
    )
    commands = result.add_subparsers(metavar="<command>", required=True)
    checking = add_command(
        commands,
        "check",
        check,
        summary="list the options of a vLLM configuration that flagos does not support",
        details=_CHECK,
    )
    checking.add_argument("model", help="the model, as for `vllm serve`")
    checking.add_argument(
        "options", nargs=argparse.REMAINDER, help="any options of `vllm serve`", metavar="..."
    )
    verifying = add_command(
        commands,
        "verify",
        verify,
        summary="verify FlagGems' kernels for vLLM's operators on this chip",
        details=_VERIFY,
    )
    verifying.add_argument(
        "--ops", default="*", metavar="PATTERN", help="operators, such as '_C::*'"
    )
    verifying.add_argument(
        "--cases", type=int, metavar="N", help="run only the first N cases of each operator"
    )
    verifying.add_argument("--jobs", type=int, default=4, metavar="N", help="processes at a time")
    verifying.add_argument("--out", type=Path, metavar="FILE", help="write the table there")
    return result


def run(arguments: list[str]) -> int:
    """Runs one command line. Returns 0 for success, 1 for a failure."""
    options = parser().parse_args(arguments)
    return int(options.run(options))


def check(options: argparse.Namespace) -> int:
    """Checks a configuration."""
    os.environ["VLLM_PLUGINS"] = activation.NAME
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_LOGGING_STREAM", "ext://sys.stderr")  # ours is the answer
    reason = activation.problem()
    if reason is not None:
        raise CommandError(f"flagos cannot serve vLLM: {reason}", None)
    problems, config = _judge([options.model, *options.options])
    if options.json:
        print_json({"problems": problems, "serves": {} if problems else _serves(config)})
    elif problems:
        for problem in problems:
            print(
                "; ".join(
                    filter(None, (f"{problem['option']}: {problem['reason']}", problem["remedy"]))
                )
            )
    else:
        print("OK: this configuration works on flagos")
        for name, value in _serves(config).items():
            print(f"  {name:<12} {value}")
    return 1 if problems else 0


def verify(options: argparse.Namespace) -> int:
    """Makes verdicts on FlagGems' kernels."""
    if find_spec("torch_fl_tools") is None:
        raise CommandError(
            "flagos vllm verify needs torch-fl-tools, which is not installed",
            "pip install 'flagos[tools]'",
        )
    from torch_fl.flaggems import table_file, tables
    from vllm_flagos import verdicts
    from vllm_flagos import verify as making
    from vllm_flagos.kernels.flaggems import SERVES

    ops = [op for op in SERVES if fnmatchcase(op, options.ops)]
    if not ops:
        raise CommandError(f"no operator matches {options.ops!r}: {', '.join(SERVES)}", None)
    try:
        found = making.verify(
            ops, options.cases, options.jobs, lambda line: print(line, file=sys.stderr)
        )
    except RuntimeError as error:
        raise CommandError(str(error), None) from error
    whole = len(ops) == len(SERVES) and options.cases is None
    into = options.out or (verdicts.path() if whole else None)
    table = tables.table(found)
    if into is not None:
        table_file.write(into, table)
        print(f"wrote {into}", file=sys.stderr)
    if options.json:
        print_json(table)
    else:
        counts = Counter(entry["verdict"] for entry in found.values())
        print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return int(any(entry["verdict"] == table_file.FAILED for entry in found.values()))


def _judge(arguments: list[str]) -> tuple[list[dict[str, str]], Any]:
    """Everything that is wrong, and the configuration if vLLM makes one of the arguments."""
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    from vllm_flagos import releases, rules

    theirs_of_serve = import_module(f"vllm.{releases.installed().parser}")
    given = theirs_of_serve.make_arg_parser(
        FlexibleArgumentParser(prog="flagos vllm check")
    ).parse_args(arguments)
    given.model = given.model_tag
    config, theirs = None, ""
    with rules.collected() as ours:
        try:
            # What vLLM prints is about the program that it starts.
            with redirect_stdout(StringIO()):
                config = AsyncEngineArgs.from_cli_args(given).create_engine_config()
        except Exception as error:
            theirs = _message(error)
    if config is not None:
        ours.extend(_without_kernels())
    found = [
        {"option": p.option, "reason": p.reason, "remedy": p.remedy} for p in dict.fromkeys(ours)
    ]
    if theirs:
        found.append({"option": "vLLM refuses it", "reason": theirs, "remedy": ""})
    return found, config


def _without_kernels() -> Iterator[rules.Problem]:
    """Operators that nothing serves, because a route has it so."""
    import flagos
    from vllm_flagos import operators, register_operators, rules
    from vllm_flagos.kernels.table import KERNELS

    register_operators()
    names = [kernel.qualified for kernel in KERNELS if kernel.reference is not None]
    for op in (*(getattr(operators, name).name for name in operators.__all__), *names):
        explanation = flagos.explain(op)
        if explanation.data["winner"] is None:
            yield rules.Problem(
                op,
                f"no implementation of it is usable, by {explanation.data['decided_by']}",
                f"`flagos explain {op}` says why of each; change the route",
            )


def _message(error: Exception) -> str:
    """The words of an error, without what pydantic puts around them."""
    errors = getattr(error, "errors", None)
    if callable(errors):
        text = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in errors())
    else:
        text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."  # some list every model


def _serves(config: Any) -> dict[str, str]:
    """The implementations that will serve this configuration."""
    import torch

    import flagos
    from vllm_flagos import register_operators, rules

    register_operators()
    device, ranks = flagos.devices()[0], rules.ranks_here(config)
    compiled = config.compilation_config
    return {
        "devices": f"{ranks} of {torch.accelerator.device_count()}, vendor {device['vendor']}: "
        f"{device['name']}",
        "attention": _winner("vllm::paged_attention"),
        "kernels": _winner("_C::rms_norm"),
        "runner": f"vLLM's V{2 if config.use_v2_model_runner else 1} model runner",
        "compilation": f"{compiled.mode.name}, graphs {compiled.cudagraph_mode.name}",
    }


def _winner(op: str) -> str:
    import flagos

    return f"{op} -> {flagos.explain(op).data['winner']}"
