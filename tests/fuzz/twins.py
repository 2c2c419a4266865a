"""One program on two devices, compared after every step."""

from __future__ import annotations

import contextlib
import ctypes
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tests.conformance.observation import Mismatch, Observation, TensorRecord, compare, record

from . import known
from .control import Control
from .program import PREAMBLE, PROLOGUE, Difference, Step

Names = dict[str, Any]
_OURS = re.compile(r"[thr]\d+")
# Differences that what follows depends on: a program ends with them, also where they may be.
_DECISIVE = {"error", "bump", "value", "alias"}
_FILLS = (255, 85, 0)
_PERTURB = -6  # mallopt's M_PERTURB: memory is filled when it is given out and given back


@dataclass
class Outcome:
    """The outcome of a program, which ends with its first difference."""

    steps: list[Step] = field(default_factory=list)
    raised: list[int] = field(default_factory=list)  # steps that raised on either side
    differences: list[Difference] = field(default_factory=list)


class Side:
    """A device, and the names that the steps have made on it."""

    def __init__(self, device: str, control: Control, same_device: bool = False) -> None:
        self.device = device
        self.same_device = same_device  # as the other side's: operators write as often
        self.control = control
        self.names: Names = {"dev": torch.device(device)}
        self.versions: dict[int, int] = {}
        self.names |= {"turn": 0, "kept": []}
        exec(PREAMBLE, self.names)

    def run(self, step: Step) -> str | None:
        """Runs one step and returns what it raised, the type first."""
        torch.default_generator.manual_seed(step.seed)  # also that of the host vendor's devices
        error = None
        if not self.control.skips(step):
            try:
                exec(compile(step.text, step.name, "exec"), self.names)
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
        return self.control.ends(step, self.names, error)


def run(
    next_step: Callable[[Names], Step | None],
    devices: tuple[str, ...],
    *,
    control: Control | None = None,
    note: Callable[[Step], None] = lambda step: None,
    perturb: bool = False,
) -> Outcome:
    """Runs the steps that ``next_step`` gives, which sees the names of the first device.

    ``control`` breaks the last device, ``note`` is told of a step before it runs, ``perturb`` fills fresh
    memory differently for the two.
    """
    outcome = Outcome()
    forgiven: set[str] = set()
    sides = [Side(device, Control()) for device in devices]
    sides[-1].control = control or Control()
    while (step := next_step(sides[0].names)) is not None:
        note(step)
        index = len(outcome.steps)
        outcome.steps.append(step)
        ends, states, randoms = [], [], []
        for number, side in enumerate(sides):
            if perturb:
                _fill_fresh_memory(number)
            ends.append(side.run(step))
            states.append(observe(side))
            randoms.append(torch.get_rng_state())
        if any(ends):
            outcome.raised.append(index)
        if len(sides) == 1:
            continue
        found = list(_differences(ends, states, randoms, sides[1].device))
        # A name that may differ is not compared from now on.
        expected = [each for each in found if known.is_expected(step.name, each)]
        forgiven |= {_place(each) for each in expected}
        wrong = [each for each in found if _place(each) not in forgiven]
        ends_here = {each.kind for each in expected} & _DECISIVE
        if wrong and "error" not in ends_here:
            outcome.differences = [
                Difference(step.name, each.kind, each.message, index) for each in wrong
            ]
        if wrong or ends_here:
            break
    _fill_fresh_memory(2)
    return outcome


def run_in_turns(
    steps: list[Step],
    turns: int,
    devices: tuple[str, str],
    *,
    fault: int = 0,
    perturb: bool = False,
) -> Outcome:
    """Runs a program in turns on two devices, on the second with automatic graphs, and compares what it sees.

    Only every fourth turn is read, and the last: nothing else but the steps keeps a device from following. ``fault``
    breaks the graphs (see `control.GRAPH_FAULTS`); with ``perturb`` there are none, and fresh memory differs.
    """
    outcome = Outcome(steps=steps)
    sides = []
    for number, device in enumerate(devices):
        if perturb:
            _fill_fresh_memory(number)
        with torch.flagos.graphs.auto(number == 1 and not perturb):
            torch.use_deterministic_algorithms(False)  # a step may have raised where they were on
            if number == 1:
                torch.ops.flagos.graphs_inject(fault)
            sides.append(list(_turns(Side(device, Control(), same_device=True), steps, turns)))
            torch.ops.flagos.graphs_inject(0)
    for (ends, observed), (wanted_ends, wanted) in zip(sides[1], sides[0], strict=True):
        if any(map(_is_refused_by_the_system, (*ends, *wanted_ends))):
            break  # nothing behind it can be compared
        for index, (end, expected) in enumerate(zip(ends, wanted_ends, strict=True)):
            if (end or expected) and index not in outcome.raised:
                outcome.raised.append(index)
            if _what(end) != _what(expected):
                message = f"raised {_brief(end)}, expected {_brief(expected)}"
                outcome.differences.append(Difference(steps[index].name, "error", message, index))
        if observed is not None and wanted is not None:
            found = compare(wanted, observed, device_type=devices[1])
            outcome.differences += [
                Difference("the end of a turn", each.kind, each.message, len(steps) - 1)
                for each in found
                if each.kind != "device"
            ]
        if outcome.differences:
            break
    _fill_fresh_memory(2)
    return outcome


def _turns(
    side: Side, steps: list[Step], turns: int
) -> Iterator[tuple[list[str | None], Observation | None]]:
    """What the steps of each turn raised, and what there was at the end of some."""
    side.names["kept"] = []
    for turn in range(turns):
        side.names["turn"] = turn
        ends = [side.run(step) for step in steps if turn == 0 or step.seed > PROLOGUE]
        ends = [None] * (len(steps) - len(ends)) + ends
        del side.names["kept"][:-6]
        yield ends, observe(side) if turn % 4 == 3 or turn == turns - 1 else None


def _fill_fresh_memory(number: int) -> None:
    """Makes what reads memory that nobody wrote see one of two things, or what it happens to be (2)."""
    ctypes.CDLL(None).mallopt(_PERTURB, _FILLS[number])
    torch.use_deterministic_algorithms(number == 1, warn_only=True)  # fills with NaN


def _differences(
    ends: list[str | None], states: list[Observation], randoms: list[torch.Tensor], device: str
) -> Iterator[Mismatch]:
    kinds = [None if end is None else end.partition(":")[0] for end in ends]
    if kinds[0] != kinds[1]:
        yield Mismatch("error", f"raised {_brief(ends[1])}, expected {_brief(ends[0])}")
        return
    if not torch.equal(randoms[0], randoms[1]):
        yield Mismatch("random state", "the generators' states differ after the step")
    wanted, got = states
    if wanted.labels != got.labels:
        odd = sorted(set(wanted.labels) ^ set(got.labels))
        if kinds[0] == kinds[1]:
            yield Mismatch("names", f"only one side has {', '.join(odd)}")
        return
    for mismatch in compare(wanted, got, device_type=device.partition(":")[0]):
        if kinds[0] and mismatch.kind == "version" and ": version moved" in mismatch.message:
            yield Mismatch("bump", mismatch.message)
        elif mismatch.kind != "device" or not re.match(r"[hr]", mismatch.message):
            yield mismatch


def observe(side: Side) -> Observation:
    """Everything compared of the tensors and values that the steps have made.

    Of a version counter that is whether it moved since the last look, not how far: composite operators
    may write several times.
    """
    labelled: list[tuple[str, Any]] = []
    for name, value in side.names.items():
        if not _OURS.fullmatch(name):
            continue
        for number, leaf in enumerate(pytree.tree_leaves(value)):
            label = name if leaf is value else f"{name}[{number}]"
            labelled.append((label, leaf))
            grad = gradient(leaf) if isinstance(leaf, torch.Tensor) else None
            if grad is not None:
                labelled.append((f"{label}.grad", grad))
    identities: dict[int, int] = {}
    storages: dict[int, int] = {}
    for _, leaf in labelled:
        if isinstance(leaf, torch.Tensor):
            identities.setdefault(id(leaf), len(identities))
    leaves = [_leaf(leaf, identities, storages) for _, leaf in labelled]
    versions = {}
    for (_, tensor), leaf in zip(labelled, leaves, strict=True):
        if isinstance(leaf, TensorRecord) and not tensor.is_inference():
            versions[id(tensor)] = tensor._version
            moved = side.versions.get(id(tensor), tensor._version) != tensor._version
            kept_or_moved = "moved" if moved else "kept"
            leaf.fields["version"] = tensor._version if side.same_device else kept_or_moved
    side.versions = versions
    return Observation([label for label, _ in labelled], leaves, "names")


def gradient(tensor: torch.Tensor) -> torch.Tensor | None:
    """A tensor's gradient, without the warning about those that never have one."""
    with warnings.catch_warnings(), contextlib.suppress(RuntimeError):  # a view that is forbidden
        warnings.simplefilter("ignore")
        return tensor.grad
    return None


def _leaf(value: Any, identities: dict[int, int], storages: dict[int, int]) -> Any:
    if not isinstance(value, torch.Tensor):
        return (
            value if isinstance(value, (bool, int, float, complex, str)) else type(value).__name__
        )
    try:
        kept: TensorRecord = record(value, identities, storages)
    except (RuntimeError, NotImplementedError) as error:
        return f"{type(value).__name__} that cannot be read: {type(error).__name__}"
    kept.fields["graph"] = None if value.grad_fn is None else type(value.grad_fn).__name__
    return kept


def _place(mismatch: Mismatch) -> str:
    """The fact that differs, and of which name."""
    return f"{mismatch.kind} {mismatch.message.partition(':')[0]}"


def _is_refused_by_the_system(end: str | None) -> bool:
    """Whether the process had no addresses left: what else it holds, such as the other side's cache, decides that."""
    return end is not None and end.startswith("OutOfMemoryError") and "the system refused" in end


def _what(end: str | None) -> str | None:
    """What a step raised, without the table of what the device holds: automatic graphs hold memory."""
    is_table = end is not None and end.startswith("OutOfMemoryError")
    return end.partition("\n")[0] if is_table else end


def _brief(text: str | None) -> str:
    return "nothing" if text is None else " ".join(text.split())[:240]
