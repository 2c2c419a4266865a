"""The commands that adapters contribute."""

from __future__ import annotations

from collections.abc import Iterator

from flagos.adapters import COMMANDS, contributions, published_commands
from flagos.cli.output import CommandError, Commands
from flagos.messages import described


def add_to(commands: Commands) -> None:
    """Adds the contributed commands to the help, with those of published adapters that are not installed."""
    for name, summary in _summaries():
        commands.add_parser(name, help=summary, add_help=False)


def is_known(name: str) -> bool:
    """Whether an installed or published adapter contributes a command of that name."""
    return any(name == known for known, _ in _summaries())


def run(name: str, arguments: list[str]) -> int:
    """Runs a command with its own options. Raises CommandError when it cannot be loaded."""
    found = [each for each in contributions(COMMANDS) if each.name == name]
    if not found:
        adapter = published_commands()[name].adapter
        raise CommandError(
            f"the command {name} comes with {adapter.distribution}, which is not installed",
            adapter.fix,
        )
    if len(found) > 1:
        both = " and ".join(each.distribution for each in found)
        raise CommandError(f"{both} both contribute the command {name}", "uninstall one of them")
    distribution = found[0].distribution
    try:
        function = found[0].load()
    # The import of an adapter may raise any exception.
    except Exception as error:
        raise CommandError(
            f"the command {name} of {distribution} cannot be loaded: {described(error)}",
            f"run `flagos doctor`, or reinstall: pip install --force-reinstall --no-deps {distribution}",
        ) from error
    return int(function(arguments))


def _summaries() -> Iterator[tuple[str, str]]:
    """Names and summaries of the contributed commands, without an import of an adapter."""
    known = published_commands()
    yield from ((name, command.summary) for name, command in known.items())
    others = {each.name: each.distribution for each in contributions(COMMANDS)}
    yield from ((name, f"of {others[name]}") for name in sorted(others.keys() - known.keys()))
