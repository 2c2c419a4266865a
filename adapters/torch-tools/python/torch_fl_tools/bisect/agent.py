"""The part of `flagos bisect` within a process of the program: it keeps the routes of the run, and records calls.

Operators that the run does not keep follow the reference, by a context of routes above all others; one that the
program enters later is below it again as soon as the plan changes. What the process did is in files of the run's
folder, each written at once, because the process may crash:

- `plan.PID.json`: the vendor, and the operators whose routes differ from the reference
- `called.PID`: those of them that Python serves, a line at the first call of each
- `counted.PID.json`: every operator that was called; of a process that ended by itself
"""

from __future__ import annotations

import atexit
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch

from flagos import _core, plan_listeners, whole_file
from flagos.plan_entry import Candidate, PlanEntry
from torch_fl import python_kernels
from torch_fl.native import native
from torch_fl_tools.bisect import marked, watch
from torch_fl_tools.bisect.trial import Trial, current

_SELECTORS = {
    "native": "vendor|reference|flagos",
    "cpu": "cpu|vendor|reference|flagos",
    "cuda": "cuda|vendor|reference|flagos",
}


def start() -> None:
    """Follow the plan from now on. The device's operators are declared afterwards."""
    trial = current()
    agent = _Agent(trial)
    python_kernels.observe(agent.observe)
    plan_listeners.join(agent)
    if trial.observer is None:
        marked.take(trial)
    atexit.register(agent.ended)


class RoutedOperator(TypedDict):
    """An operator whose route differs from the reference's."""

    impl: str | None
    backend: str | None
    python: bool  # whether Python serves it
    random: bool


class ProcessPlan(TypedDict):
    """The file `plan.PID.json`."""

    vendor: str
    has_reference: bool
    main: str | None
    argv: list[str]
    routed: dict[str, RoutedOperator]


class _Agent:
    """A listener of the plan (`flagos.plan_listeners`), the first of the process."""

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._routes: dict[str, str] = {}
        self._token: int | None = None
        self._composed: set[str] = set()  # attached to nothing, so that torch composes them
        self._noted: ProcessPlan | None = None
        self._has_reference = False
        self._watching = None if trial.watch is None else watch.Watching(trial)

    def require(self, op: str) -> None:
        """Every operator may have implementations."""

    def registered(self, implementation: plan_listeners.Implementation) -> None:
        """The plan is looked at once it is published."""

    def unregistered(self, op: str, impl_id: str) -> None:
        """The plan is looked at once it is published."""

    def published(self) -> None:
        """Note the routes that differ from the reference, and override those that are not kept."""
        plan = _core.plan()["ops"]
        reference = self._trial.reference
        differing = {op: entry for op, entry in plan.items() if differs(entry, reference)}
        self._has_reference = self._has_reference or any(
            _is_reference(one, reference) for entry in plan.values() for one in entry["candidates"]
        )
        self._note(differing)
        keep = self._trial.keep
        if keep is not None:
            self._override({op: e for op, e in differing.items() if op not in keep})
        if self._watching is not None:
            self._watching.attach(plan)

    def _override(self, entries: Mapping[str, PlanEntry]) -> None:
        self._composed |= {op for op in entries if is_composed(op)}
        routed = entries.keys() - self._composed
        if not routed:
            return
        self._routes |= dict.fromkeys(routed, _SELECTORS[self._trial.reference])
        before = self._token
        self._token = _core.push_context(self._routes)
        if before is not None:
            _core.pop_context(before)

    def observe(
        self, op: str, chosen: python_kernels.Implementation | None
    ) -> python_kernels.Implementation | None:
        """Returns the implementation to attach for `op` instead of the plan's choice."""
        if op in self._composed:
            return None
        if self._watching is not None:
            return self._watching.observe(op, chosen)
        if chosen is None:
            return None
        path = self._trial.folder / f"called.{os.getpid()}"
        return chosen._replace(fn=_telling_first(op, chosen.fn, path))

    def ended(self) -> None:
        """Write which operators were called: the process ends by itself."""
        called = sorted(op for op, numbers in _core.counters().items() if numbers["calls"])
        _write(self._trial.folder / f"counted.{os.getpid()}.json", called)

    def _note(self, differing: Mapping[str, PlanEntry]) -> None:
        routed: dict[str, RoutedOperator] = {
            op: {
                "impl": entry["winner"],
                "backend": entry["backend"],
                "python": entry["route"] == "foreign" and op.startswith("aten::"),
                "random": _is_random(op),
            }
            for op, entry in differing.items()
        }
        before = {} if self._noted is None else self._noted["routed"]
        if self._noted is not None and routed.keys() <= before.keys():
            return
        self._noted = {
            "vendor": native().vendor,
            "has_reference": self._has_reference,
            "main": getattr(sys.modules.get("__main__"), "__file__", None),
            "argv": sys.argv,
            "routed": {**before, **routed},
        }
        _write(self._trial.folder / f"plan.{os.getpid()}.json", self._noted)


def differs(entry: PlanEntry, reference: str) -> bool:
    """Whether an operator has another implementation than the reference's, and could have that one."""
    if entry["winner"] is None:
        return False
    others = [one for one in entry["candidates"] if _is_reference(one, reference)]
    if not others:  # of an operator that torch composes of others, that is what the reference does
        return reference == "native" and is_composed(entry["op"])
    return all(one["impl_id"] != entry["winner"] for one in others)


def _is_reference(candidate: Candidate, reference: str) -> bool:
    if reference != "native":
        return bool(candidate["backend"] == reference)
    if candidate["kind"] == "vendor":
        return bool(candidate["vendor"] == native().vendor)
    return bool(candidate["kind"] == "reference")


_COMPOSITE_KEYS = (
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)


def is_composed(op: str) -> bool:
    """Whether torch composes an ATen operator of others where the plan has no implementation of it."""
    if not op.startswith("aten::"):
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    own = any(one["kind"] != "flagos" for one in _core.explain(op)["candidates"])
    return not own and any(has_kernel(op, key) for key in _COMPOSITE_KEYS)


def _is_random(op: str) -> bool:
    if not op.startswith("aten::"):
        return False
    return torch.Tag.nondeterministic_seeded in python_kernels.require_operator(op).tags


def _telling_first(op: str, fn: Callable[..., Any], path: Path) -> Callable[..., Any]:
    written: list[bool] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        if not written:
            written.append(True)
            with path.open("a") as file:
                file.write(op + "\n")
        return fn(*args, **kwargs)

    return call


def _write(path: Path, value: Any) -> None:
    """Write a file of JSON, whole or not at all."""
    whole_file.write(path, json.dumps(value))
