"""One recorded call by FlagGems' kernel and by the native one, on memory with red zones."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from flagos import UnsupportedError
from torch_fl import python_kernels
from torch_fl.flaggems import envelope, implementations
from torch_fl.flaggems.table_file import FAILED, STRICT
from torch_fl.native import native
from torch_fl_tools.flaggems.comparison import compare, same_bits, strides, worse
from torch_fl_tools.flaggems.recorded import classes
from torch_fl_tools.flaggems.recorded.inputs import Inputs
from torch_fl_tools.flaggems.recorded.tuning import Unfit, choosing
from torch_fl_tools.flaggems.recorded.zones import FILLERS, Fenced, Zones
from torch_fl_tools.records.facts import Call

# Operators that return places of elements.
_CHOOSING = frozenset(
    ["argmax", "argmin", "max", "min", "topk", "sort", "argsort", "kthvalue", "median"]
)
_NO_FURTHER = 2.0  # times the native kernel's distance from the result in float64


@dataclass
class Outcome:
    """The outcome of a call. `verdict` is None if FlagGems does not serve it, or nothing can be said; `why`."""

    verdict: str | None
    why: str = ""
    held: frozenset[str] = frozenset()  # the conditions that the call keeps
    sizes: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    configurations: int = 1  # tried
    late: bool = False  # whether there was no time for all configurations
    lost: bool = False  # whether the device was lost
    short: bool = False  # whether there was no memory for it, which says nothing of the kernel
    compared: bool = (
        False  # whether it FAILED by its results alone: nothing else was read or written
    )


def judge(
    call: Call,
    every_config: bool = False,
    report: Callable[[str], None] = lambda step: None,
    red_zones: bool = True,
    until: float = float("inf"),
    first: int = 0,
) -> Outcome:
    """The verdict on FlagGems' kernel for one call: as the native kernel's result, and nothing else read or written.

    `report` is called with each step before it. `every_config` runs all configurations of kernels that are tuned,
    instead of the first that the chip takes, counted from the number `first`; no other is begun after `until`, by
    time.monotonic.
    Without `red_zones` memory is torch's own, for a checker outside, and runs are not repeated.
    """
    try:
        return _judge(call, every_config, report, red_zones, until, first)
    except Exception as error:
        if implementations.without_memory(error):
            return Outcome(None, f"there is no memory for it: {error}".splitlines()[0], short=True)
        return Outcome(
            None,
            f"it could not be checked: {implementations.message(error)}",
            lost=native().lost(error),
        )


def _judge(
    call: Call,
    every_config: bool,
    report: Callable[[str], None],
    red_zones: bool,
    until: float,
    first: int,
) -> Outcome:
    op = python_kernels.require_operator(call.op)
    random = torch.Tag.nondeterministic_seeded in op.tags
    device = torch.device(native().device_type or "flagos")
    inputs = Inputs(call, device)
    found = Outcome(None, sizes=classes.of(call))
    zones = Zones(device, FILLERS[0])
    args, kwargs = inputs.make(zones)
    found.held = envelope.holding(call.overload, args, kwargs)
    if broken := [
        name
        for name in envelope.ordered(implementations.conditions(call.overload))
        if name not in found.held
    ]:
        found.why = f"it serves no such call: {envelope.meaning(broken[0])}"
        return found
    report(f"the native run of {call}")
    try:
        with torch.no_grad():
            expected = _results(op, op(*args, **kwargs), args, kwargs)
        torch.get_device_module(device).synchronize()
    except Exception as error:
        if implementations.without_memory(error):
            raise
        found.why = f"the native kernel raised {implementations.message(error)}"
        found.lost = native().lost(error)
        return found

    number, configurations = first, first + 1
    while number < configurations:
        report(f"FlagGems' run of {call}" + (f", configuration {number}" if number else ""))
        try:
            with choosing(number) as choice:
                made, wrong = _run(op, inputs, device, FILLERS[0], red_zones)
                if not wrong and red_zones and not random:
                    wrong = _depends_on_others(op, inputs, device, made)
        except Unfit:
            made, wrong = None, ""
        except UnsupportedError as error:
            found.why = f"FlagGems declines it: {error}"
            return found
        except Exception as error:
            if implementations.without_memory(error):
                raise
            made, wrong = None, f"it raises {implementations.message(error)}"
            found.lost = native().lost(error)
        verdict, why = (FAILED, wrong) if wrong else (None, "")
        if made is not None and not wrong:
            verdict, why = compare(expected, made, random)
            if verdict != STRICT and not random and _is_right(op, inputs, device, expected, made):
                verdict, why = STRICT, ""
        if verdict is not None and (found.verdict is None or worse(verdict, found.verdict)):
            found.verdict, found.why, found.compared = verdict, why, not wrong
            if why and number:
                found.why += f" (by configuration {number}: {'; '.join(choice.descriptions)[:200]})"
        number += 1
        found.configurations = number
        if found.verdict == FAILED or (found.verdict is not None and not every_config):
            break
        configurations = choice.configurations
        if number < configurations and time.monotonic() > until:
            found.late = True
            break
    if found.verdict is None and not found.late:
        found.why = "the chip takes no configuration of its kernels"
    return found


def _run(
    op: Any, inputs: Inputs, device: torch.device, filler: int, red_zones: bool
) -> tuple[list[torch.Tensor], str]:
    """The results of FlagGems' kernel on memory filled with a byte, and what was wrong beside them."""
    zones = Zones(device, filler) if red_zones else Zones(device, filler, around=0)
    args, kwargs = inputs.make(zones)
    function = implementations.function(op._schema.name.partition("::")[2] + _suffix(op))
    torch.manual_seed(7)
    with torch.no_grad():
        if red_zones:
            with Fenced(zones):
                result = function(*args, **kwargs)
        else:
            result = function(*args, **kwargs)
    result = implementations.in_arguments(op, result, args, kwargs)
    torch.get_device_module(device).synchronize()
    return _results(op, result, args, kwargs), (zones.damage() or "" if red_zones else "")


def _depends_on_others(
    op: Any, inputs: Inputs, device: torch.device, made: list[torch.Tensor]
) -> str:
    """Whether results are others where memory holds other bytes beside the arguments; empty if they are not."""
    again, wrong = _run(op, inputs, device, FILLERS[1], True)
    if wrong or same_bits(made, again):
        return wrong
    repeated, _ = _run(op, inputs, device, FILLERS[0], True)
    if not same_bits(made, repeated):
        return ""  # it does not repeat itself: compared within tolerances alone
    return "it reads beside its arguments, or what nobody wrote: with other bytes there its result is another"


def _results(op: Any, result: Any, args: Any, kwargs: Any) -> list[torch.Tensor]:
    """The tensors that a call returned, and those that it wrote to."""
    names = [argument.name for argument in op._schema.arguments]
    given = dict(zip(names, args, strict=False)) | kwargs
    written = [
        given.get(a.name) for a in op._schema.arguments if a.alias_info and a.alias_info.is_write
    ]
    found: list[torch.Tensor] = []
    for leaf in pytree.tree_leaves((result, written)):
        if isinstance(leaf, torch.Tensor) and not any(leaf is known for known in found):
            found.append(leaf)
    return found


def _is_right(
    op: Any,
    inputs: Inputs,
    device: torch.device,
    expected: list[torch.Tensor],
    made: list[torch.Tensor],
) -> bool:
    """Whether results that are not those of the native kernel within the tolerances are as good."""
    if len(expected) != len(made) or any(
        a.dtype != b.dtype or a.shape != b.shape or strides(a) != strides(b)
        for a, b in zip(expected, made, strict=True)
    ):
        return False
    if op._schema.name.partition("::")[2] in _CHOOSING:
        return _chooses_alike(inputs, device, expected, made)
    return _as_close(op, inputs, device, expected, made)


def _chooses_alike(
    inputs: Inputs, device: torch.device, expected: list[torch.Tensor], made: list[torch.Tensor]
) -> bool:
    """Whether other elements were chosen that are equal to those that the native kernel chose, each of them once.

    Among thousands of 16-bit numbers many are equal.
    """
    args, _ = inputs.make(Zones(device, 0))
    dim = inputs.named.get("dim", None if len(expected) == 1 else -1)
    x = args[0].flatten() if dim is None else args[0]
    dim = 0 if dim is None else dim
    for theirs, mine in zip(expected, made, strict=True):
        if theirs.is_floating_point():
            if not torch.equal(theirs, mine):
                return False
            continue
        a, b = (i if i.dim() == x.dim() else i.unsqueeze(dim) for i in (theirs, mine))
        if bool(((b < 0) | (b >= x.shape[dim])).any()):
            return False
        if not torch.equal(x.gather(dim, a), x.gather(dim, b)):
            return False
        if bool((b.sort(dim).values.diff(dim=dim) == 0).any()):
            return False
    return True


def _as_close(
    op: Any,
    inputs: Inputs,
    device: torch.device,
    expected: list[torch.Tensor],
    made: list[torch.Tensor],
) -> bool:
    """Whether results are about as far from those in float64 as the native kernel's are.

    Sums of thousands of numbers of both signs lose digits in any order of addition.
    """
    pairs = list(zip(expected, made, strict=True))
    try:
        with torch.no_grad():
            args, kwargs = pytree.tree_map(_in_double, inputs.make(Zones(device, 0)))
            exact = _results(op, op(*args, **kwargs), args, kwargs)
    except Exception as error:  # the operator has no kernel for float64
        if implementations.without_memory(error):
            raise
        return False
    if len(exact) != len(expected):
        return False
    for truth, ours in zip(exact, pairs, strict=True):
        theirs, mine = (x.double() for x in ours)
        if not truth.is_floating_point() or not ours[0].is_floating_point():
            if not torch.equal(*ours):
                return False
            continue
        if not torch.equal(theirs.isfinite(), mine.isfinite()):
            return False
        finite = theirs.isfinite() & truth.isfinite()
        if not bool(finite.any()):
            continue
        off, at_most = ((x - truth)[finite].abs().max() for x in (mine, theirs))
        one_digit = torch.finfo(ours[0].dtype).eps * truth[finite].abs().max()
        if float(off) > max(_NO_FURTHER * float(at_most), float(one_digit)):
            return False
    return True


def _in_double(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.double()
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value


def _suffix(op: Any) -> str:
    return f".{op._schema.overload_name}" if op._schema.overload_name else ""
