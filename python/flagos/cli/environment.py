"""``flagos env``."""

from __future__ import annotations

from typing import Annotated

import typer

from flagos.cli.output import Json, print_json, print_table


def env(
    set_only: Annotated[
        bool, typer.Option("--set", help="Only the variables that are set here.")
    ] = False,
    json: Json = False,
) -> None:
    """
    List every environment variable flagos knows, its default, meaning and value here.

    \b
    Examples:
      $ flagos env
      $ flagos env --set --json
    """
    from flagos._core import environment

    variables = [entry for entry in environment() if entry["value"] is not None or not set_only]
    if json:
        print_json({"variables": variables})
        return
    print_table(
        ("variable", "value", "default", "meaning"),
        [
            (
                entry["name"],
                "" if entry["value"] is None else entry["value"],
                entry["default"],
                entry["doc"],
            )
            for entry in variables
        ],
    )
