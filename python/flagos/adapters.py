"""Contributions of adapters to the ``flagos`` command, and the catalogue of published adapters.

An adapter contributes functions by entry points. The groups and the signatures of their functions:

* ``flagos.commands``: ``run(arguments: list[str]) -> int`` is the command of the entry point's name. It
  parses its own options and returns the status; :class:`flagos.cli.output.CommandError` prints a message.
* ``flagos.doctor.checks``: ``checks(timeout: float) -> Iterator[Check]`` runs in ``flagos doctor``;
  ``timeout`` (seconds) is for each process it starts (:func:`flagos.processes.reports.run_module`).
* ``flagos.doctor.canaries``: ``canaries(timeout: float, found: Mapping[str, Check]) -> Iterator[Check]``
  runs small computations after all checks; ``found`` are the checks by name.
* ``flagos.frameworks``: ``framework() -> Framework`` tells which framework the adapter found and by which native
  code it will serve it, for ``flagos devices``. It imports no framework.
* ``flagos.operators``: ``register() -> None`` registers the operators of the namespace that the entry point
  is named after, for ``flagos ops`` and ``flagos explain``.

A module is imported only when its function is needed. A framework may be broken, so its import belongs into
the function of a command, or into the process that a check starts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

COMMANDS = "flagos.commands"
CHECKS = "flagos.doctor.checks"
CANARIES = "flagos.doctor.canaries"
FRAMEWORKS = "flagos.frameworks"
OPERATORS = "flagos.operators"


class Framework(NamedTuple):
    """A framework as an adapter found it."""

    #: Its name and version, such as ``torch 2.15.0``.
    name: str
    #: The file by which the adapter will serve it; ``None`` where it cannot.
    native: str | None
    #: Why it cannot.
    reason: str | None = None


class Contribution(NamedTuple):
    """One entry point, whose module is not imported yet."""

    #: The name of the adapter, of the command, or of the namespace.
    name: str
    #: The distribution that declares it, such as ``my-adapter``.
    distribution: str
    entry: EntryPoint

    @property
    def package(self) -> str:
        """The top-level package of the function."""
        return self.entry.module.partition(".")[0]

    def load(self) -> Callable[..., Any]:
        """Imports the function. Raises the errors of its module, and TypeError if it is not callable."""
        function = self.entry.load()
        if not callable(function):
            raise TypeError(f"{self.entry.value} is no function")
        return function  # type: ignore[no-any-return]


def contributions(group: str) -> list[Contribution]:
    """The entry points of a group: published adapters in their order, then other adapters by name."""

    order = {adapter.distribution: place for place, adapter in enumerate(published())}
    found = [
        Contribution(entry.name, entry.dist.name if entry.dist else entry.value, entry)
        for distribution in _declaring(group)
        for entry in distribution.entry_points.select(group=group)
    ]
    found.sort(key=lambda one: (order.get(one.distribution, len(order)), one.distribution))
    return found


def _declaring(group: str) -> Iterator[Distribution]:
    """The distributions with entry points of a group; of two with one name, that which is imported.

    `metadata.entry_points` parses those of all distributions, a tenth of what registering a device took.
    """
    from importlib import metadata

    names = set()
    for distribution in metadata.distributions():
        if group not in (distribution.read_text("entry_points.txt") or ""):
            continue
        if not (name := distribution.name):
            yield distribution  # its metadata is broken, its entry points are not
        elif name not in names:
            names.add(name)
            yield metadata.distribution(name)


class Published(NamedTuple):
    """An adapter that is published with this version of flagos."""

    #: The extra of the distribution ``flagos`` that installs the adapter.
    extra: str
    distribution: str
    package: str
    #: The namespace of its operators; ``None`` where it has none.
    namespace: str | None
    #: Whether most installations lack it.
    optional: bool
    #: Environment variables that need the adapter when they have this value.
    variables: dict[str, str]

    @property
    def fix(self) -> str:
        """The command that installs the adapter."""
        return f"pip install 'flagos[{self.extra}]'"


class PublishedCommand(NamedTuple):
    """A command that a published adapter contributes."""

    summary: str
    adapter: Published


class _Command(TypedDict):
    summary: str
    extra: str


class _Catalogue(TypedDict):
    adapters: list[dict[str, Any]]
    commands: dict[str, _Command]


@cache
def _catalogue() -> _Catalogue:
    # The catalogue is data, so no adapter is imported. The layout test compares it with the adapters.
    file = Path(__file__).with_name("data") / "adapters.json"
    catalogue: _Catalogue = json.loads(file.read_text(encoding="utf-8"))
    return catalogue


@cache
def published() -> tuple[Published, ...]:
    """Every published adapter, in the order of ``flagos doctor``."""
    return tuple(Published(**entry) for entry in _catalogue()["adapters"])


@cache
def published_commands() -> dict[str, PublishedCommand]:
    """The commands of published adapters by name, in the order of the help."""
    by_extra = {adapter.extra: adapter for adapter in published()}
    return {
        name: PublishedCommand(entry["summary"], by_extra[entry["extra"]])
        for name, entry in _catalogue()["commands"].items()
    }
