"""The cases for verifying an overload: samples, and the forms in which an operator is called with them."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from flagos.processes.pool import Report, TaskOutcome
from torch_fl import python_kernels
from torch_fl.flaggems import envelope, interpreted
from torch_fl.flaggems.parts import CALLED_BY
from torch_fl.native import native
from torch_fl_tools.comparing import tasks
from torch_fl_tools.flaggems import samples
from torch_fl_tools.flaggems.samples import tensors

FIRST = 6  # samples of every entry; an entry whose first FIRST samples are all declined is left
_SHARED = 240  # samples of one form and dtype, shared by all entries
_WHOLE = sys.maxsize
_VARIED = 3  # samples of which variations are made
_ENTRY_SECONDS = 120.0  # limit for producing the samples of one entry

Where = list[tuple[str, str]]
"""Entries of the database, each with the form in which it is called."""


@dataclass(frozen=True)
class Group:
    """Cases that differ in their arguments only: an entry of the database, a form and a dtype."""

    entry: str
    form: str
    dtype: torch.dtype

    def __str__(self) -> str:
        return f"{self.entry} ({self.form}) {samples.type_name(self.dtype)}"

    @property
    def call(self) -> Callable[[Any], Any]:
        """Call the operator with a sample."""
        op = database()[self.entry]
        forms = dict(_forms(op))
        return forms[self.form] if self.form in forms else _directly(op, self.form)

    def samples(self, limit: int) -> Iterator[tuple[str, Any]]:
        """Named samples on the CPU: up to `limit` of the database, and variations after the first.

        The names of those that are the database's own are `plain`.
        """
        op, grad = database()[self.entry], self.form == "gradient"
        made = islice(op.sample_inputs("cpu", self.dtype, requires_grad=grad), limit)
        varied, first = 0, None
        for index, sample in enumerate(islice(made, FIRST)):
            yield f"sample {index}", sample
            first = sample if index == 0 else first
            if varied < _VARIED and any(t.numel() > 1 for t in tensors(samples.parts(sample))):
                made_of_it = samples.variations(op, self.dtype, sample, varied, grad)
                for what, variation in _until_it_fails(made_of_it):
                    yield f"sample {index}, {what}", variation
                varied += 1
        yield from _until_it_fails(samples.of_our_own(op, self.dtype, first, grad))
        for index, sample in enumerate(made, FIRST):
            yield f"sample {index}", sample


def _until_it_fails(made: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    """The variations that can be made. One that fails does not cost the other samples of the database."""
    with contextlib.suppress(Exception):
        yield from made


def plain(label: str) -> bool:
    """Whether a case is an unchanged sample of the database."""
    return re.fullmatch(r"sample \d+", label.rpartition(", ")[2]) is not None


def kind(case: str) -> str:
    """The kind of a variation, the same for all samples of the entry; for other cases the name.

    Floating-point types are one kind.
    """
    found = re.fullmatch(r"(.*\)) (\w+), sample \d+, (.*)", case)
    if found is None:
        return case
    group, dtype, what = found.groups()
    return f"{group} {'floating' if 'float' in dtype else dtype}, {what}"


def shares(overload: str, where: Where, samples: int | None = None) -> dict[str, int]:
    """The number of samples to take of each entry that calls an overload: `samples` if that is given.

    Otherwise all of the overload's own entry; of the others at least FIRST, and of few entries many.
    """
    entries = {entry for entry, _ in where}
    if samples is not None:
        return dict.fromkeys(entries, samples)
    each = max(FIRST, _SHARED // max(1, len(entries)))
    return {entry: _WHOLE if _own(overload, entry) else each for entry in entries}


def _own(overload: str, entry: str) -> bool:
    """Whether an entry has the name of an overload, apart from the form (`exp_`, `exp.out`, `silu_backward`)."""
    base = overload.partition(".")[0].removesuffix("_backward").strip("_")
    op = database()[entry]
    return base in (op.name.rpartition(".")[2].strip("_"), op.aten_name.strip("_"))


@cache
def database() -> dict[str, Any]:
    """torch's operator database, by name."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


def groups(where: list[tuple[str, str]]) -> list[Group]:
    """The cases of the entries and forms that call an overload, in the dtypes of the native device."""
    # Triton's interpreter truncates to 16 bits where a device rounds.
    types = [
        d
        for d in envelope.TYPES
        if not (interpreted.wanted() and d.is_floating_point and d.itemsize < 4)
    ]
    found = []
    for entry, form in where:
        op = database()[entry]
        kinds = op.supported_backward_dtypes if form == "gradient" else op.supported_dtypes
        found += [
            Group(entry, form, dtype)
            for dtype in types
            if dtype in kinds(native().device_type or native().vendor)
        ]
    return found


def calling(
    wanted: set[str],
    jobs: int = 1,
    samples: int = 40,
    seconds: float = float("inf"),
    stop: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, Where], list[TaskOutcome]]:
    """For each overload the entries of the database whose samples call it, with the form. Runs on the CPU.

    An overload that its own entries do not call in any form is called itself with their samples (`relu_` with those
    of `relu`); the form is its name. Forks `jobs` processes, which share the entries. Those that did not reach
    the end of their share (they died, an entry took too long, `seconds` were over) come second; what they had found
    counts.
    """
    began = time.monotonic()
    names = list(database())
    threads = torch.get_num_threads()
    # Tensors are small, and a process that forks must have no other threads.
    torch.set_num_threads(1)
    try:
        # Forked even for one entry: a process that has used autograd cannot fork one that uses it.
        def share(job: str, report: Report) -> dict[str, Where]:
            return _calling(names[int(job) :: jobs], wanted, samples, report)

        shares = [str(job) for job in range(jobs)]
        ended = list(tasks.run(shares, share, jobs, _ENTRY_SECONDS, seconds, stop))
        found: dict[str, Where] = defaultdict(list)
        for one in ended:
            for overload, where in (one.result or one.partial or {}).items():
                found[overload] += where
        for overload in CALLED_BY.keys() & wanted:
            found[overload] = [CALLED_BY[overload]]

        def itself(overload: str, report: Report) -> Where:
            return _called_itself(overload, samples, report)

        all_looked = all(one.result is not None for one in ended)
        missing = sorted(n for n in wanted if not any(_own(n, entry) for entry, _ in found[n]))
        left = seconds - (time.monotonic() - began)
        for one in tasks.run(
            missing if all_looked else [], itself, jobs, _ENTRY_SECONDS, left, stop
        ):
            ended.append(one)
            if one.result:
                found[one.name] += one.result
    finally:
        torch.set_num_threads(threads)
    position = {name: index for index, name in enumerate(names)}
    ordered = {
        n: sorted(where, key=lambda e: position[e[0]]) for n, where in found.items() if where
    }
    return ordered, [one for one in ended if one.result is None]


def _calling(names: list[str], wanted: set[str], samples: int, report: Report) -> dict[str, Where]:
    found: dict[str, Where] = defaultdict(list)
    for name in names:
        report(name, dict(found))
        op = database()[name]
        dtype = next((d for d in envelope.TYPES if d in op.dtypes), None)
        if dtype is None:
            continue
        for form, call in _forms(op):
            grad = form == "gradient"
            if grad and dtype not in op.supported_backward_dtypes("cpu"):
                continue
            seen = _Seen()
            try:
                for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=grad), samples):
                    with seen:
                        call(sample)
            except Exception:  # this form does not take the sample, but may take others
                pass
            for overload in seen.names & wanted:
                found[overload].append((name, form))
    return dict(found)


def _called_itself(overload: str, samples: int, report: Report) -> Where:
    found: Where = []
    for name, op in database().items():
        if not _own(overload, name):
            continue
        report(f"{overload}, with samples of {name}", None)
        dtype = next((d for d in envelope.TYPES if d in op.dtypes), None)
        call = _directly(op, overload)
        for sample in islice(op.sample_inputs("cpu", dtype), samples) if dtype else ():
            try:
                call(sample)
            except Exception:  # the form does not take this sample
                continue
            found.append((name, overload))
            break
    return found


class _Seen(TorchDispatchMode):
    """Context manager that collects the overloads that are called inside it."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name: str = func._schema.name.removeprefix("aten::")
        overload = func._schema.overload_name
        self.names.add(f"{name}.{overload}" if overload else name)
        return func(*args, **(kwargs or {}))


# ---- how an operator is called


def _forms(op: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The forms: as a function, in place, with out=, and as the backward operator."""
    yield "function", lambda sample: op(sample.input, *sample.args, **sample.kwargs)
    if op.inplace_variant is not None:
        yield (
            "in place",
            lambda sample: op.inplace_variant(sample.input, *sample.args, **sample.kwargs),
        )
    if op.supports_out:
        yield "out", lambda sample: _with_out(op, sample)
    if op.supports_autograd:
        yield "gradient", lambda sample: _gradients(op, sample)


def _with_out(op: Any, sample: Any) -> Any:
    made = op(sample.input, *sample.args, **sample.kwargs)
    out = pytree.tree_map_only(torch.Tensor, lambda t: torch.full_like(t, 7).clone(), made)
    return op(sample.input, *sample.args, **sample.kwargs, out=out)


def _gradients(op: Any, sample: Any) -> Any:
    made = op(sample.input, *sample.args, **sample.kwargs)
    outputs = [t for t in tensors(made) if t.requires_grad]
    inputs = [t for t in tensors(samples.parts(sample)) if t.requires_grad]
    apart = any(t.layout == torch.strided and not t.is_contiguous() for t in inputs)
    incoming = [_incoming(output, apart) for output in outputs]
    return torch.autograd.grad(outputs, inputs, incoming, allow_unused=True)


def _incoming(output: torch.Tensor, apart: bool) -> torch.Tensor:
    """A gradient of `output` with different numbers, contiguous or, with `apart`, strided.

    Ones in a row are what kernels get right that take one element for another. All are positive, as sums would else
    lose their digits. It is made on the CPU, unseen: what makes it is no part of the case.
    """
    if output.layout != torch.strided or output.is_nested:
        return torch.ones_like(output)
    with _disable_current_modes():
        numbers = ((torch.arange(output.numel()) % 13 + 1) / 8).to(output.dtype)
        pitch = 2 if apart else 1
        flat = torch.zeros(output.numel(), pitch, dtype=output.dtype)
        flat[:, 0] = numbers
        return flat.to(output.device).view(*output.shape, pitch).select(-1, 0)


def _directly(op: Any, overload: str) -> Callable[[Any], Any]:
    """Call the overload itself with the samples of an entry for the same operator.

    A number is made of the first element where it takes a number, and a tensor of a number likewise.
    """
    operator = python_kernels.require_operator(f"aten::{overload}")
    kinds = {
        argument.name: re.sub(r"Optional\[(.*)\]", r"\1", str(argument.type))
        for argument in operator._schema.arguments
    }
    outs = [argument.name for argument in operator._schema.arguments if argument.is_out]

    def call(sample: Any) -> Any:
        given = (sample.input, *sample.args)
        args = [_fitted(x, kind) for x, kind in zip(given, kinds.values(), strict=False)]
        kwargs = {name: _fitted(x, kinds.get(name)) for name, x in sample.kwargs.items()}
        if outs:
            made = op(sample.input, *sample.args, **sample.kwargs)
            kwargs |= {
                name: torch.full_like(x, 7) for name, x in zip(outs, tensors(made), strict=True)
            }
        return operator(*args, *given[len(args) :], **kwargs)

    return call


def _fitted(value: Any, kind: str | None) -> Any:
    if kind in ("number", "float") and isinstance(value, torch.Tensor):
        return value.flatten()[0].item()
    if kind == "Tensor" and isinstance(value, (bool, int, float)):
        return torch.tensor(value)
    return value
