"""Which of a tuned kernel's configurations runs: one that the caller names, instead of the fastest.

A kernel that is tuned may end up with any of its configurations, so each has to be right.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock


class Unfit(Exception):
    """The chip does not take the configuration, so that tuning would not choose it."""


class Choice:
    """What was chosen from inside `choosing`."""

    def __init__(self) -> None:
        self.configurations = 1
        """How many configurations the kernel with the most has."""
        self.told: list[str] = []
        """The kernels that are tuned, each with the configuration that ran."""


@contextmanager
def choosing(number: int) -> Iterator[Choice]:
    """Every tuned kernel meanwhile runs its configuration of that number, counted anew where it has fewer.

    Nothing is measured and no kernel is kept. Raises Unfit, from the kernel's launch, for what the chip does not take.
    """
    from triton.runtime.autotuner import Autotuner

    choice = Choice()

    def run(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        several = len(tuner.configs) > 1
        fitting = list(tuner.prune_configs(kwargs)) if several else tuner.configs
        choice.configurations = max(choice.configurations, len(fitting))
        config = fitting[number % len(fitting)]
        tuner.best_config = config
        if several:
            choice.told.append(f"{tuner.base_fn.__name__}: {config}")
        given = config.all_kwargs()
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **given})
        try:
            return tuner.fn.run(*args, **kwargs, **given)
        except _unfit() as error:
            raise Unfit(f"{type(error).__name__}: {error}") from error
        finally:
            tuner.nargs = None

    with ExitStack() as stack:
        for owner in (Autotuner, *_subclasses(Autotuner)):
            if "run" in vars(owner):
                stack.enter_context(mock.patch.object(owner, "run", run))
        entries = getattr(sys.modules.get("flag_gems.utils.libentry"), "LibEntry", None)
        if entries is not None:
            stack.enter_context(mock.patch.object(entries, "run", _forgetting(entries.run)))
        yield choice


def _subclasses(owner: type) -> Iterator[type]:
    one: type
    for one in owner.__subclasses__():
        yield one
        yield from _subclasses(one)


def _unfit() -> tuple[type[BaseException], ...]:
    from triton.compiler.errors import CompileTimeAssertionFailure
    from triton.runtime.errors import OutOfResources, PTXASError

    return OutOfResources, CompileTimeAssertionFailure, PTXASError


def _forgetting(run: Callable[..., Any]) -> Callable[..., Any]:
    """FlagGems' `LibEntry.run`, which keeps the kernel of the first configuration, without what it keeps."""

    def forgetful(entry: Any, *args: Any, **kwargs: Any) -> Any:
        kept = entry.kernel_cache
        entry.kernel_cache = tuple({} for _ in kept)
        try:
            return run(entry, *args, **kwargs)
        finally:
            entry.kernel_cache = kept

    return forgetful
