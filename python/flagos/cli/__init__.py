"""The ``flagos`` command.

Each command of this package is a file here; adapters contribute others (:mod:`flagos.adapters`). Commands
that need a framework import it late, so all other commands start fast and work when the framework is
broken. The parser is argparse, because ``flagos devices`` must answer in 0.2 s.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence

from flagos.cli import contributed, devices, doctor, environment, operators, vendor
from flagos.cli.output import CommandError, print_json, printable

#: The commands of this package, each with the function that adds it to the parser.
OWN = {
    "devices": devices.add_to,
    "ops": operators.add_ops_to,
    "explain": operators.add_explain_to,
    "doctor": doctor.add_to,
    "env": environment.add_to,
    "vendor": vendor.add_to,
}

#: Errors of a disk or a quota that is full, and of a disk that fails.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def parser(*, with_contributed: bool = True) -> argparse.ArgumentParser:
    """The command line. Commands of adapters are only listed: they parse their own options."""
    result = argparse.ArgumentParser(
        prog="flagos",
        description="One device for PyTorch and other frameworks. Shows devices and routes, and diagnoses problems.",
        epilog="`flagos <command> --help` shows examples.",
    )
    result.add_argument("--version", action="store_true", help="print the version and exit")
    commands = result.add_subparsers(metavar="<command>")
    for add_to in OWN.values():
        add_to(commands)
    if with_contributed:
        contributed.add_to(commands)
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the console script; exits with the status of the command."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Names of files and words of programs may be no text, or none that the terminal has.
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: list[str]) -> int:
    """Runs one command line. Returns 0 for success, 1 for a failure, 2 for a wrong command line."""
    name = arguments[0] if arguments else ""
    if name not in OWN and contributed.is_known(name):
        return _reporting(lambda: contributed.run(name, arguments[1:]))
    everything = parser(with_contributed=name not in OWN)
    options = everything.parse_args(arguments)
    if options.version:
        from importlib.metadata import version

        print(version("flagos"))
        return 0
    if not hasattr(options, "run"):
        everything.print_help()
        return 2
    return _reporting(lambda: int(options.run(options)))


def _reporting(command: Callable[[], int]) -> int:
    """Runs a command and returns its status. Known errors become a message instead of a traceback."""
    try:
        status = command()
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        print(file=sys.stderr)
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # Whoever reads, such as `head`, has enough.
        _drop_output()
        return 128 + signal.SIGPIPE
    except CommandError as error:
        return _report(error, str(error), error.hint)
    except OSError as error:
        if error.errno not in _FULL:
            raise
        # It may be the output itself, which could not hold the message of `--json` either.
        _drop_output()
        print(f"error: cannot write: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        # The only unguarded import of commands is `flagos._core`.
        hint = "run `flagos doctor`, or reinstall: pip install --force-reinstall --no-deps flagos"
        return _report(error, str(error), hint)
    except Exception as error:
        # A FlagosError is recognised by its module's name: the class may be in a module that did not load.
        if type(error).__module__ != "flagos":
            raise
        return _report(error, str(error), None)


def _drop_output() -> None:
    """Discards output that is still to be written to standard output at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _report(error: Exception, message: str, hint: str | None) -> int:
    if "--json" in sys.argv:
        print_json({"error": message, "hint": hint or getattr(error, "hint", None)})
    else:
        print(f"error: {printable(message)}", file=sys.stderr)
        if hint:
            print(f"  fix: {printable(hint)}", file=sys.stderr)
    return 1
