"""The ``flagos`` command.

Each command is a file here. Nothing imports torch except the commands that say so, and those import
it late, so that every other one answers at once and works when torch is broken. For the same reason
this is argparse and not a library with more comfort: ``flagos devices`` must answer in 0.2 s.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from flagos.cli import bench, demo, devices, doctor, environment, flaggems, lightx2v, operators
from flagos.cli.output import CommandError, print_json


def parser() -> argparse.ArgumentParser:
    """The command line."""
    result = argparse.ArgumentParser(
        prog="flagos",
        description="One device for PyTorch and more: look at it, at its routes, at what is wrong.",
        epilog="`flagos <command> --help` shows examples.",
    )
    result.add_argument("--version", action="store_true", help="print the version and exit")
    commands = result.add_subparsers(metavar="<command>")
    devices.add_to(commands)
    operators.add_to(commands)
    doctor.add_to(commands)
    environment.add_to(commands)
    lightx2v.add_to(commands)
    demo.add_to(commands)
    flaggems.add_to(commands)
    bench.add_to(commands)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; exits with the status of the command."""
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Runs one command line: 0 when all is well, 1 when not, 2 when it is not understood."""
    if arguments[:1] == ["demo"]:
        return demo.run(arguments[1:])  # its options are its own
    if arguments and arguments[0] in flaggems.COMMANDS:
        try:
            return flaggems.run(arguments[0], arguments[1:])
        except CommandError as error:
            return _report(error, str(error), error.hint)
    if arguments[:1] == ["bench"]:
        try:
            return bench.run(arguments[1:])
        except CommandError as error:
            return _report(error, str(error), error.hint)
    everything = parser()
    options = everything.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(version("flagos"))
        return 0
    if not hasattr(options, "run"):
        everything.print_help()
        return 2
    try:
        return int(options.run(options))
    except CommandError as error:
        return _report(error, str(error), error.hint)
    except ImportError as error:
        # Commands import only `flagos._core` without a guard of their own.
        hint = "run `flagos doctor`, or reinstall: pip install --force-reinstall --no-deps flagos"
        return _report(error, str(error), hint)
    except Exception as error:
        # A FlagosError, told by name: its class may be in a module that did not load.
        if type(error).__module__ != "flagos":
            raise
        return _report(error, str(error), None)


def _report(error: Exception, message: str, hint: str | None) -> int:
    if "--json" in sys.argv:
        print_json({"error": message, "hint": hint or getattr(error, "hint", None)})
    else:
        print(f"error: {message}", file=sys.stderr)
        if hint:
            print(f"  fix: {hint}", file=sys.stderr)
    return 1
