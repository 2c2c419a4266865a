"""Verdicts: FlagGems' overloads against the native kernels, on the samples of torch's operator database.

    flagos verify [--ops PATTERN] [--jobs N] [--samples N] [--out FILE] [--json]

Each overload has a process of its own, forked before CUDA is initialised. Its operators' samples run twice
on flagos, on the native kernel and on FlagGems', and must agree: STRICT in values (torch's own tolerances),
dtype, shape, strides and where NaN is; BASIC with ten times the tolerance, or with other strides, or where
numbers are random and only their shape can be compared; FAILED otherwise. Calls that are replayed are
compared with the ones from Python bit for bit.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from importlib.metadata import version as version_of
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import flagos
from torch_fl import python_kernels, replay, routing
from torch_fl.flaggems import candidates, tables

STRICT, BASIC, FAILED, UNTESTED = "STRICT", "BASIC", "FAILED", "UNTESTED"
_ORDER = (STRICT, BASIC, FAILED)
_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)
_CALLS = 5  # of the same: from Python, recorded twice, replayed
_TIME_LIMIT = 240.0  # seconds for one overload


class _Seen(TorchDispatchMode):
    """The overloads that are called while it is entered."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name: str = func._schema.name.removeprefix("aten::")
        overload = func._schema.overload_name
        self.names.add(f"{name}.{overload}" if overload else name)
        return func(*args, **(kwargs or {}))


def _database() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.full_name: op for op in op_db}


def _forms(op: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    """The ways an operator is called: as a function, in place, and for its gradient."""
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
    outputs = [
        t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    inputs = [
        t
        for t in pytree.tree_leaves((sample.input, sample.args, sample.kwargs))
        if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    ones = [torch.ones_like(output) for output in outputs]
    return torch.autograd.grad(outputs, inputs, ones, allow_unused=True)


def which_operators(wanted: set[str], samples: int = 4) -> dict[str, list[tuple[str, str]]]:
    """For each overload, the entries of the database whose samples call it, and in which form. On the CPU."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, op in _database().items():
        dtype = next((d for d in _DTYPES if d in op.dtypes), None)
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
            except Exception:  # a sample this form does not take; the rest is still of use
                pass
            for overload in seen.names & wanted:
                found[overload].append((name, form))
    return found


# ---- one overload, in its own process


def _copy(sample: Any) -> Any:
    """The sample on flagos: own memory, the same strides."""

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        copy = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device="flagos"
        )
        copy.copy_(tensor.detach())
        return copy.requires_grad_(tensor.requires_grad)

    return sample.transform(lambda x: moved(x) if isinstance(x, torch.Tensor) else x)


def _with_special_values(sample: Any) -> Any:
    def planted(x: Any) -> Any:
        if not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point or x.numel() < 4:
            return x
        x = x.detach().clone()
        flat = x.view(-1) if x.is_contiguous() else x.reshape(-1)
        flat[:3] = torch.tensor([float("nan"), float("inf"), float("-inf")], dtype=x.dtype)
        return flat.view(x.shape)

    return sample.transform(planted)


def _samples(op: Any, dtype: torch.dtype, grad: bool, limit: int) -> Iterator[tuple[str, Any]]:
    for index, sample in enumerate(
        islice(op.sample_inputs("cpu", dtype, requires_grad=grad), limit)
    ):
        yield f"sample {index}", sample
        if index < 2:
            yield f"sample {index}, not contiguous", sample.noncontiguous()
            if dtype.is_floating_point and not grad:
                yield f"sample {index}, with NaN and infinities", _with_special_values(sample)


def _tensors(value: Any) -> list[torch.Tensor]:
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _compare(
    expected: list[torch.Tensor], actual: list[torch.Tensor], random: bool
) -> tuple[str, str]:
    if len(expected) != len(actual):
        return FAILED, f"{len(actual)} results instead of {len(expected)}"
    worst, why = STRICT, ""
    for one, other in zip(expected, actual, strict=True):
        if one.dtype != other.dtype or one.shape != other.shape:
            return (
                FAILED,
                f"{other.dtype} {tuple(other.shape)} instead of {one.dtype} {tuple(one.shape)}",
            )
        if random:
            worst, why = BASIC, "its random numbers are its own"
            continue
        a, b = one.detach().cpu(), other.detach().cpu()
        try:
            torch.testing.assert_close(b, a, equal_nan=True)
        except AssertionError as error:
            said = " ".join(str(error).split())[:160]
            rtol, atol = (10 * x for x in torch.testing._comparison.default_tolerances(a))
            try:
                torch.testing.assert_close(b, a, equal_nan=True, rtol=rtol, atol=atol)
            except AssertionError:
                return FAILED, said
            worst, why = BASIC, said
        if one.stride() != other.stride() and one.numel() > 0 and worst == STRICT:
            worst, why = BASIC, f"strides {other.stride()} instead of {one.stride()}"
    return worst, why


def _outcome(call: Callable[[Any], Any], sample: Any) -> tuple[Any, Exception | None]:
    torch.manual_seed(7)
    try:
        result = call(sample)
        torch.accelerator.synchronize()
        return _tensors(result) + _tensors((sample.input, sample.args, sample.kwargs)), None
    except Exception as error:
        return [], error


def check(overload: str, where: list[tuple[str, str]], limit: int) -> dict[str, Any]:
    """The verdict on one overload, with the first case that kept it from being STRICT."""
    op_name = f"aten::{overload}"
    database = _database()
    random = torch.Tag.nondeterministic_seeded in python_kernels.require_operator(op_name).tags
    found: dict[str, Any] = {"verdict": UNTESTED, "cases": 0, "replayed": 0, "first": None}
    for name, form in where:
        op = database[name]
        call = dict(_forms(op))[form]
        grad = form == "gradient"
        dtypes = op.supported_backward_dtypes("cuda") if grad else op.supported_dtypes("cuda")
        for dtype in (d for d in _DTYPES if d in dtypes):
            for label, sample in _samples(op, dtype, grad, limit):
                case = f"{name} ({form}) {str(dtype).removeprefix('torch.')}, {label}"
                with flagos.route({op_name: "vendor"}):
                    expected, error = _outcome(call, _copy(sample))
                if error is not None:
                    continue
                with flagos.route({op_name: candidates.BACKEND}):
                    served = _calls(op_name)
                    actual, error = _outcome(call, _copy(sample))
                    if error is None and _calls(op_name) == served:
                        continue  # these arguments take another way
                    if error is None:
                        verdict, why = _compare(expected, actual, random)
                        if verdict != FAILED and not random:
                            difference = _replays_alike(call, sample, actual)
                            if difference:
                                verdict, why = FAILED, difference
                    else:
                        said = " ".join(str(error).split())[:200]
                        verdict, why = FAILED, f"{type(error).__name__}: {said}"
                    stats = replay.statistics().get(op_name)
                    if stats is not None:
                        found["replayed"] += stats.replays > 0
                        found["not_replayed"] = sorted(
                            {*found.get("not_replayed", []), *stats.reasons}
                        )[:3]
                found["cases"] += 1
                if found["verdict"] == UNTESTED or _ORDER.index(verdict) > _ORDER.index(
                    found["verdict"]
                ):
                    found["verdict"] = verdict
                    if verdict != STRICT:
                        found["first"] = f"{case}: {why}"
                if error is not None and "CUDA" in str(error) and "illegal" in str(error):
                    return found  # the device is lost to this process
    return found


def _calls(op: str) -> int:
    counted = routing.counters().get(op, {"calls": 0, "fallbacks": 0})
    return counted["calls"] - counted["fallbacks"]  # what it declined, it did not serve


def _replays_alike(call: Callable[[Any], Any], sample: Any, first: list[torch.Tensor]) -> str:
    """What differs between the call from Python and the same calls after it; empty when nothing does."""
    for _ in range(_CALLS - 1):
        again, error = _outcome(call, _copy(sample))
        if error is not None:
            return f"a repeated call raised {type(error).__name__}: {error}"[:200]
        for one, other in zip(first, again, strict=True):
            same = one.stride() == other.stride() and torch.equal(
                one.detach().cpu().contiguous().reshape(-1).view(torch.uint8),
                other.detach().cpu().contiguous().reshape(-1).view(torch.uint8),
            )
            if not same:
                return "a repeated call differs from the one before it"
    return ""


# ---- all of them


def _child(overload: str, where: list[tuple[str, str]], limit: int, out: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    torch.set_num_threads(1)
    try:
        out.send(check(overload, where, limit))
    except BaseException as error:  # told to the parent, as the verdict
        last = traceback.extract_tb(error.__traceback__)[-1]
        said = " ".join(str(error).split())[:160]
        out.send(
            {
                "verdict": FAILED,
                "cases": 1,
                "first": f"{type(error).__name__} in {last.name}: {said}",
            }
        )
    out.close()
    os._exit(0)


def verify(
    pattern: str = "*",
    jobs: int = 4,
    samples: int = 6,
    progress: Callable[[int, int, str, dict[str, Any]], None] | None = None,
    seconds: float = float("inf"),
) -> dict[str, dict[str, Any]]:
    """The verdict of every overload whose name matches. Forks, so CUDA must not be initialised yet.

    Raises RuntimeError when it is, or when FlagGems cannot be used.
    """
    if torch.cuda.is_initialized():
        raise RuntimeError("CUDA is in use in this process already: verify in a fresh one")
    found = candidates.registered()
    if not found or candidates.why_unusable():
        reason = candidates.why_unusable() if found else candidates.missing()
        raise RuntimeError(f"FlagGems cannot be used: {reason}")
    names = [name for name in sorted(found) if fnmatchcase(name, pattern)]
    verdicts: dict[str, dict[str, Any]] = {}
    for name in [name for name in names if not candidates.usable(name)]:
        names.remove(name)
        verdicts[name] = {"verdict": UNTESTED, "cases": 0, "first": "it is never routed"}
    where = which_operators(set(names))
    todo = [name for name in names if where.get(name)]
    for name in names:
        if not where.get(name):
            verdicts[name] = {"verdict": UNTESTED, "cases": 0, "first": "no sample calls it"}
    context = multiprocessing.get_context("fork")
    running: dict[str, tuple[Any, Any, float]] = {}
    done = 0
    total = len(todo)
    began = time.monotonic()
    while todo or running:
        over = time.monotonic() - began > seconds
        for name in todo if over else []:
            verdicts[name] = {"verdict": UNTESTED, "cases": 0, "first": "there was no time for it"}
        todo = [] if over else todo
        while todo and len(running) < jobs:
            name = todo.pop(0)
            receive, send = context.Pipe(duplex=False)
            process = context.Process(target=_child, args=(name, where[name], samples, send))
            process.start()
            send.close()
            running[name] = (process, receive, time.monotonic())
        for name, (process, receive, started) in list(running.items()):
            late = over or time.monotonic() - started > _TIME_LIMIT
            if not receive.poll(0.02) and process.is_alive() and not late:
                continue
            try:
                verdict = receive.recv() if receive.poll(0) else None
            except EOFError:
                verdict = None
            if verdict is None and over:
                process.kill()
                verdict = {"verdict": UNTESTED, "cases": 0, "first": "there was no time for it"}
            if verdict is None:
                process.kill()
                process.join()
                why = "took too long" if late else f"the process ended with {process.exitcode}"
                verdict = {"verdict": FAILED, "cases": 0, "first": why}
            process.join()
            del running[name]
            verdicts[name] = verdict
            done += 1
            if progress is not None:
                progress(done, total, name, verdict)
    return dict(sorted(verdicts.items()))


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos verify`."""
    parser = argparse.ArgumentParser(
        prog="flagos verify",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--ops", default="*", help="shell pattern of overloads: 'add*'")
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--samples", type=int, default=6, help="of each operator and dtype")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after so long")
    parser.add_argument("--out", type=Path, help="the table; by default where the plan reads it")
    parser.add_argument("--json", action="store_true", help="print the table, too")
    options = parser.parse_args(arguments)

    def told(done: int, total: int, name: str, verdict: dict[str, Any]) -> None:
        why = f"  {verdict['first']}" if verdict["verdict"] == FAILED else ""
        print(f"[{done}/{total}] {name}: {verdict['verdict']}{why}", file=sys.stderr, flush=True)

    try:
        verdicts = verify(options.ops, options.jobs, options.samples, told, options.seconds)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    table = tables.keep(
        "verdicts",
        verdicts,
        options.out,
        options.ops == "*",
        triton=version_of("triton"),
        samples=options.samples,
    )
    counts = Counter(entry["verdict"] for entry in verdicts.values())
    if options.json:
        print(json.dumps(table))
    else:
        print(", ".join(f"{counts.get(kind, 0)} {kind}" for kind in (*_ORDER, UNTESTED)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
