"""``flagos verify`` and ``flagos tune``: what is known of FlagGems' kernels on this chip."""

from __future__ import annotations

from importlib.util import find_spec

from flagos.cli.output import CommandError, Commands

#: Each command, what it does, and the module that does it.
COMMANDS = {
    "verify": ("compare FlagGems' kernels with the native ones", "torch_fl.flaggems.verify"),
    "tune": ("measure FlagGems' kernels against the native ones", "torch_fl.flaggems.tune"),
}


def add_to(commands: Commands) -> None:
    """Adds the commands to the help; :func:`run` is called before anything is parsed."""
    for name, (summary, _) in COMMANDS.items():
        commands.add_parser(name, help=summary, add_help=False)


def run(name: str, arguments: list[str]) -> int:
    """Runs one with its own options."""
    if find_spec("torch_fl") is None:
        raise CommandError("the torch adapter is not installed", "pip install 'flagos[torch]'")
    from importlib import import_module

    module = import_module(COMMANDS[name][1])
    return int(module.main(arguments))
