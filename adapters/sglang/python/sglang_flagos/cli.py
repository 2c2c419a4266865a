"""``flagos sglang``: checks an SGLang configuration, and verifies FlagGems' kernels for SGLang."""

from __future__ import annotations

import argparse
import os
import pkgutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING, Any

from flagos.cli.output import CommandError, add_command
from flagos_serving import commands
from sglang_flagos import activation, releases

if TYPE_CHECKING:
    from flagos_serving.flaggems import FlagGems
    from flagos_serving.refusals import Problem

_CHECK = """
Takes the arguments of `python -m sglang.launch_server`, reads the model's configuration (not its weights), and lists
what flagos does not serve and what SGLang itself refuses. Exits with 1 if there is something. Our own options come
before SGLang's.

examples:
  $ flagos sglang check --model-path Qwen/Qwen3-0.6B --tp-size 2
  $ flagos sglang check --json --model-path Qwen/Qwen3-0.6B --enable-dp-attention
  --enable-dp-attention: it has not been tried on flagos; leave it out
"""


_VERIFY = """
Compares FlagGems' kernels for SGLang's operators with the references, at sizes of models, and writes the verdicts of
this chip beside those of `flagos verify`. With FLAGOS_FLAGGEMS=verified the kernels that are STRICT serve SGLang. The
command takes minutes.

examples:
  $ flagos sglang verify
  $ flagos sglang verify --ops 'sglang::*norm' --cases 4     # some operators: prints, and writes no table
"""


def parser() -> argparse.ArgumentParser:
    """The command line, with the command below it."""
    result = argparse.ArgumentParser(
        prog="flagos sglang",
        description="Checks an SGLang configuration, or verifies FlagGems' kernels for SGLang.",
        epilog="`flagos sglang check --help` and `flagos sglang verify --help` show examples.",
    )
    below = result.add_subparsers(metavar="<command>", required=True)
    checking = add_command(
        below,
        "check",
        check,
        summary="list the options of an SGLang configuration that flagos does not support",
        details=_CHECK,
    )
    checking.add_argument(
        "options",
        nargs=argparse.REMAINDER,
        help="the options of `python -m sglang.launch_server`, --model-path among them",
        metavar="...",
    )
    commands.add_verify(below, verify, "SGLang", _VERIFY, "sglang::*norm")
    return result


def run(arguments: list[str]) -> int:
    """Runs one command line. Returns 0 for success, 1 for a failure."""
    options = parser().parse_args(_separated(arguments))
    return int(options.run(options))


def _separated(arguments: list[str]) -> list[str]:
    """argparse takes options of others only behind a positional argument, or behind ``--``."""
    if arguments[:1] != ["check"] or "--" in arguments:
        return arguments
    ours = {"--json", "-h", "--help"}
    first = next((i for i, one in enumerate(arguments[1:], 1) if one not in ours), None)
    return arguments if first is None else [*arguments[:first], "--", *arguments[first:]]


def check(options: argparse.Namespace) -> int:
    """Checks a configuration."""
    os.environ["SGLANG_PLATFORM"] = activation.NAME
    reason = activation.problem()
    if reason is not None:
        raise CommandError(f"flagos cannot serve SGLang: {reason}", None)
    problems, args = _judge([one for one in options.options if one != "--"])
    return commands.print_check(options, problems, lambda: _serves(args))


def verify(options: argparse.Namespace) -> int:
    """Makes verdicts on FlagGems' kernels."""
    commands.require_tools("flagos sglang verify")
    return commands.verify(options, registered)


def registered() -> FlagGems:
    """Registers the operators with the plan of this process, and returns what FlagGems is offered."""
    from sglang_flagos import register_operators
    from sglang_flagos.operators.flaggems import FLAGGEMS

    register_operators()
    return FLAGGEMS


def _judge(arguments: list[str]) -> tuple[list[dict[str, str]], Any]:
    """Everything that is wrong, and SGLang's arguments if it makes them."""
    import logging

    logging.disable(logging.ERROR)  # what SGLang reports is about the server that it would start
    args, theirs = None, ""
    try:
        with redirect_stdout(StringIO()):
            from sglang.srt.plugins import load_plugins
            from sglang.srt.server_args import prepare_server_args

            load_plugins()
        from sglang_flagos import rules

        with rules.collected() as ours:
            said = StringIO()
            try:
                with redirect_stdout(StringIO()), redirect_stderr(said):
                    args = _resolved(prepare_server_args(arguments))
            except SystemExit:  # of the parser, which has said why
                theirs = said.getvalue().strip().splitlines()[-1]
            except Exception as error:
                theirs = commands.message(error)
    finally:
        logging.disable(logging.NOTSET)
    if args is not None:
        ours.extend(_without_kernels())
    # What SGLang makes of options that flagos refuses says nothing.
    return commands.listed(ours, "SGLang", "" if ours else theirs), args


def _resolved(args: Any) -> Any:
    """The arguments as SGLang and flagos complete them."""
    view = releases.installed().resolved
    if view is None:
        return args
    args.resolve_once()
    return pkgutil.resolve_name(view)(args)


def _without_kernels() -> Iterator[Problem]:
    """Operators that nothing serves, because a route has it so."""
    from sglang_flagos import operators

    return commands.without_kernels(getattr(operators, name).name for name in operators.__all__)


def _serves(args: Any) -> dict[str, str]:
    """The implementations that will serve this configuration."""
    import torch

    import flagos
    from flagos_serving.declaration import device_type
    from sglang_flagos import rules

    device, ranks = flagos.devices()[0], rules.ranks_here(args)
    captured = device_type() == "cuda" and args.cuda_graph_config.decode.backend == rules.FULL
    overlap = "without" if args.disable_overlap_schedule else "with"
    return {
        "devices": f"{ranks} of {torch.accelerator.device_count()}, vendor {device['vendor']}: "
        f"{device['name']}",
        "attention": ", ".join(
            commands.winner(f"sglang::{name}") for name in rules.attention(args)
        ),
        "layers": commands.winner("sglang::rms_norm"),
        "graphs": "of decoding" if captured else "none",
        "scheduler": f"{overlap} overlap, pages of {args.page_size}, prompts in parts of "
        f"{args.chunked_prefill_size}",
    }
