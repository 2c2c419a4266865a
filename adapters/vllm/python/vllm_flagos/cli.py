"""``flagos vllm``: checks a vLLM configuration, and verifies FlagGems' kernels for vLLM."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import TYPE_CHECKING, Any

from flagos.cli.output import CommandError, add_command
from flagos_serving import commands
from vllm_flagos import activation

if TYPE_CHECKING:
    from flagos_serving.flaggems import FlagGems
    from flagos_serving.refusals import Problem

_CHECK = """
Takes the arguments of `vllm serve`, reads the model's configuration (not its weights), and lists what flagos does not
serve, what vLLM itself refuses, and which of the options are served. Exits with 1 if something is refused. Our own
options come before the model.

examples:
  $ flagos vllm check Qwen/Qwen3-0.6B --tensor-parallel-size 2
  $ flagos vllm check Qwen/Qwen3-30B-A3B --quantization fp8 --enable-prefix-caching
  --quantization fp8: flagos has kernels of experts without quantization, and with weights of integers; ...
  served: --enable-prefix-caching
  $ flagos vllm check --json Qwen/Qwen3-30B-A3B     # for programs
"""


_VERIFY = """
Compares FlagGems' kernels for vLLM's operators with the references, at sizes of models, and writes the verdicts of this
chip beside those of `flagos verify`. With FLAGOS_FLAGGEMS=verified the kernels that are STRICT serve vLLM. The command
takes minutes.

examples:
  $ flagos vllm verify
  $ flagos vllm verify --ops '_moe_C::*' --cases 4     # some operators: prints, and writes no table
"""


def parser() -> argparse.ArgumentParser:
    """The command line, with the command below it."""
    result = argparse.ArgumentParser(
        prog="flagos vllm",
        description="Checks a vLLM configuration, or verifies FlagGems' kernels for vLLM.",
        epilog="`flagos vllm check --help` and `flagos vllm verify --help` show examples.",
    )
    below = result.add_subparsers(metavar="<command>", required=True)
    checking = add_command(
        below,
        "check",
        check,
        summary="list the options of a vLLM configuration that flagos does not support",
        details=_CHECK,
    )
    checking.add_argument("model", help="the model, as for `vllm serve`")
    checking.add_argument(
        "options", nargs=argparse.REMAINDER, help="any options of `vllm serve`", metavar="..."
    )
    commands.add_verify(below, verify, "vLLM", _VERIFY, "_C::*")
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
    return commands.print_check(options, problems, lambda: _serves(config))


def verify(options: argparse.Namespace) -> int:
    """Makes verdicts on FlagGems' kernels."""
    commands.require_tools("flagos vllm verify")
    return commands.verify(options, registered)


def registered() -> FlagGems:
    """Registers the operators with the plan of this process, and returns what FlagGems is offered."""
    from vllm_flagos import register_operators
    from vllm_flagos.kernels.flaggems import FLAGGEMS

    register_operators()
    return FLAGGEMS


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
            theirs = commands.message(error)
    if config is not None:
        ours.extend(_without_kernels())
    return commands.listed(ours, "vLLM", theirs), config


def _without_kernels() -> Iterator[Problem]:
    """Operators that nothing serves, because a route has it so."""
    from vllm_flagos import operators, register_operators
    from vllm_flagos.kernels.table import KERNELS

    register_operators()
    names = [kernel.qualified for kernel in KERNELS if kernel.reference is not None]
    return commands.without_kernels(
        (*(getattr(operators, name).name for name in operators.__all__), *names)
    )


def _serves(config: Any) -> dict[str, str]:
    """The implementations that will serve this configuration."""
    import torch

    import flagos
    from vllm_flagos import register_operators, rules

    register_operators()
    device, ranks = flagos.devices()[0], rules.ranks_here(config)
    compiled, model = config.compilation_config, config.model_config
    graphs = compiled.cudagraph_mode.name
    if graphs != "NONE" and rules.broken_graphs():
        graphs += ", which end at attention as they are captured"
    weights = {} if model.quantization is None else {"weights": model.quantization}
    return {
        "devices": f"{ranks} of {torch.accelerator.device_count()}, vendor {device['vendor']}: "
        f"{device['name']}",
        "attention": commands.winner(
            "vllm::latent_attention" if model.use_mla else "vllm::paged_attention"
        ),
        **weights,
        "kernels": commands.winner("_C::rms_norm"),
        "runner": f"vLLM's V{2 if config.use_v2_model_runner else 1} model runner",
        "compilation": f"{compiled.mode.name}, graphs {graphs}",
    }
