"""Implementations that a program registers, in another process: for repros that `flagos bisect` writes."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import NoReturn

import flagos
from flagos import _core, plan_listeners
from torch_fl_tools.bisect import agent


class _Registered(BaseException):
    """Ends the program as soon as it has registered the implementation."""


class _Listener:
    def __init__(self, op: str, impl_id: str) -> None:
        self.wanted = (op, impl_id)
        self.made: plan_listeners.Implementation | None = None

    def require(self, op: str) -> None:
        """Nothing is refused."""

    def registered(self, made: plan_listeners.Implementation) -> None:
        """Stop the program at the implementation."""
        if self.made is None and (made.op, made.impl_id) == self.wanted:
            self.made = made
            self._stop()

    def _stop(self) -> NoReturn:
        raise _Registered

    def unregistered(self, op: str, impl_id: str) -> None:
        """Registering is undone, since it was stopped."""

    def published(self) -> None:
        """Nothing depends on the plan."""


def native(op: str) -> AbstractContextManager[object]:
    """Within this, native kernels serve `op`; an operator that torch composes is composed if nothing is registered."""
    if agent.is_composed(op):
        return nullcontext()
    return flagos.route({op: "vendor|reference"})


def implementation(op: str, impl_id: str, program: str | None, argv: Sequence[str]) -> None:
    """Have the implementation registered: it is already, or `program` is run until it registers it.

    Raises RuntimeError if the program does not.
    """
    if _is_registered(op, impl_id):
        return
    if program is None or not Path(program).is_file():
        raise RuntimeError(f"{op} has no implementation {impl_id} here, and {program} is no file")
    listener = _Listener(op, impl_id)
    plan_listeners.join(listener)
    before, sys.argv = sys.argv, [program, *argv[1:]]
    sys.path.insert(0, os.path.dirname(os.path.abspath(program)))
    try:
        runpy.run_path(program, run_name="__main__")
    except _Registered:
        pass  # this is where it was to stop
    finally:
        sys.argv = before
    made = listener.made
    if made is None:
        raise RuntimeError(f"{program} registered no implementation {impl_id} of {op}")
    if not _is_registered(op, impl_id):  # stopping it has undone it
        flagos.register(
            op,
            made.fn,
            impl_id=impl_id,
            backend=made.backend,
            native=made.native,
            on_request="repro",
        )
    plan_listeners.published()


def _is_registered(op: str, impl_id: str) -> bool:
    return any(one["impl_id"] == impl_id for one in _core.explain(op)["candidates"])
