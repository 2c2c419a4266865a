"""``flagos demo``."""

from __future__ import annotations

import typer

#: Options belong to the demonstration's own parser.
PASS_EVERYTHING = {"allow_extra_args": True, "ignore_unknown_options": True}


def demo(context: typer.Context) -> None:
    """Train a small Qwen3 on the flagos device, let it write, compare it with the CPU."""
    from flagos.demo import main

    raise typer.Exit(main(context.args))
