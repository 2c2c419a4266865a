"""``flagos demo``."""

from __future__ import annotations

from flagos.cli.output import Commands


def add_to(commands: Commands) -> None:
    """Adds the command to the help; :func:`run` is called before anything is parsed."""
    summary = "train a small Qwen3 on the device, let it write, compare with the CPU"
    commands.add_parser("demo", help=summary, add_help=False)


def run(arguments: list[str]) -> int:
    """Runs the demonstration with its own options."""
    from flagos.demo import main

    return main(arguments)
