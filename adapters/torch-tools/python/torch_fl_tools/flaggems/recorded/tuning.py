"""Which of a tuned kernel's configurations runs: one that the caller names, instead of the fastest.

A kernel that is tuned may end up with any of its configurations, so each has to be right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from torch_fl.flaggems import configurations
from torch_fl.flaggems.pack_file import Configurations


class Unfit(Exception):
    """The chip does not take the configuration, so that tuning would not choose it."""


class Choice:
    """The configurations that kernels ran inside `choosing`."""

    def __init__(self) -> None:
        self.configurations = 1
        """How many configurations the kernel with the most has."""
        self.descriptions: list[str] = []
        """The kernels that are tuned, each with the configuration that ran."""
        self.chosen: Configurations = {}
        """The same as a tuning file has it: by the kernel's name and the key that it is tuned by."""


@contextmanager
def choosing(number: int, named: configurations.Named = {}) -> Iterator[Choice]:  # noqa: B006
    """Every tuned kernel meanwhile runs its configuration of that number, counted anew where it has fewer.

    Number 0 is the one that `named` names, where it names one. Nothing is measured and no kernel is kept. Raises Unfit,
    from the kernel's launch, for what the chip does not take.
    """
    choice = Choice()

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        several = len(tuner.configs) > 1
        fitting = list(tuner.prune_configs(kwargs)) if several else tuner.configs
        choice.configurations = max(choice.configurations, len(fitting))
        config = fitting[number % len(fitting)]
        if several:
            kernel, key = configurations.name(tuner), configurations.key(tuner, kwargs)
            wanted = named.get(kernel, {}).get(key) if number == 0 else None
            config = next((c for c in tuner.configs if configurations.plain(c) == wanted), config)
            choice.descriptions.append(f"{tuner.base_fn.__name__}: {config}")
            choice.chosen.setdefault(kernel, {})[key] = configurations.plain(config)
        try:
            return configurations.launch(tuner, config, args, kwargs)
        except configurations.unfit() as error:
            raise Unfit(f"{type(error).__name__}: {error}") from error
        finally:
            tuner.nargs = None

    with ExitStack() as stack:
        for owner in configurations.owners():
            stack.enter_context(mock.patch.object(owner, "run", run))
        entries = getattr(sys.modules.get("flag_gems.utils.libentry"), "LibEntry", None)
        if entries is not None:
            stack.enter_context(mock.patch.object(entries, "run", _forgetting(entries.run)))
        yield choice


def _forgetting(run: Callable[..., Any]) -> Callable[..., Any]:
    """FlagGems' `LibEntry.run`, which keeps the kernel of the first configuration, without what it keeps."""

    def forgetful(entry: Any, *args: Any, **kwargs: Any) -> Any:
        caches = entry.kernel_cache
        entry.kernel_cache = tuple({} for _ in caches)
        try:
            return run(entry, *args, **kwargs)
        finally:
            entry.kernel_cache = caches

    return forgetful
