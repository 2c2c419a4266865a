"""``flagos env``."""

from __future__ import annotations

import argparse

from flagos.cli.output import Commands, add_command, print_json, print_table

DETAILS = """
examples:
  $ flagos env
  $ flagos env --set --json
"""


def add_to(commands: Commands) -> None:
    """Adds the command."""
    parser = add_command(
        commands,
        "env",
        env,
        summary="list every environment variable with its default, meaning and value",
        details=DETAILS,
    )
    parser.add_argument("--set", action="store_true", help="list only the variables that are set")


def env(options: argparse.Namespace) -> int:
    """Lists variables."""
    from flagos import _core

    variables = [v for v in _core.environment() if v["value"] is not None or not options.set]
    if options.json:
        print_json({"variables": variables})
        return 0
    print_table(
        ("variable", "value", "default", "meaning"),
        [(v["name"], v["value"] or "", v["default"], v["doc"]) for v in variables],
    )
    return 0
