"""``flagos lightx2v``, which the LightX2V adapter brings."""

from __future__ import annotations

import argparse
from importlib import import_module
from importlib.util import find_spec

from flagos.cli.output import CommandError, Commands

ADAPTER = "lightx2v_fl"


def add_to(commands: Commands) -> None:
    """Adds the command, with those of the adapter below it where that is installed."""
    parser = commands.add_parser(
        "lightx2v",
        help="ready configurations for LightX2V, and a check of your own",
        description="Ready configurations for LightX2V, and a check of your own.",
        epilog="`flagos lightx2v <command> --help` shows examples.",
    )
    if find_spec(ADAPTER) is None:
        parser.add_argument("rest", nargs="*", help=argparse.SUPPRESS)
        parser.set_defaults(run=_not_installed)
        return
    below = parser.add_subparsers(metavar="<command>", required=True)
    import_module(f"{ADAPTER}.cli").add_to(below)


def _not_installed(options: argparse.Namespace) -> int:
    raise CommandError(
        f"the LightX2V adapter is not installed (no module {ADAPTER})",
        "pip install 'flagos[lightx2v]'",
    )
