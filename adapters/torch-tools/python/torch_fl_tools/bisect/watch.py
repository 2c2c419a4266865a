"""Single calls of operators, each compared with the reference on copies of its arguments, as the program runs.

Files in the folder of the run: `begun.PID` tells the last call that began and whether it ended, for a program that
crashes or hangs; `found.json` with `found.pt` is the first call that differs or raises; `worst.json` with `worst.pt`
is the call with the largest difference within the tolerances; `saved.json` with `saved.pt` is the call of the number
that the run is to save.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch.utils import _pytree as pytree

import flagos
from flagos import UnsupportedError, _core, whole_file
from flagos.plan_entry import PlanEntry
from torch_fl import python_kernels
from torch_fl.native import native
from torch_fl_tools.bisect import measure
from torch_fl_tools.bisect.findings import Call, Difference
from torch_fl_tools.bisect.trial import Trial
from torch_fl_tools.comparing.transfer import Transfer

_FRAME = re.compile(
    r'File "(.+)", line (\d+), in (\S+)\s*([^\n]*)'
)  # as the traceback module prints one
_BEGUN = 512  # bytes of the record of the last call
_HERE = Path(__file__).resolve().parents[1]


class Watching:
    """The calls of some operators in this process."""

    def __init__(self, trial: Trial) -> None:
        assert trial.watch is not None
        self._trial, self._watch = trial, trial.watch
        self._lock = threading.RLock()
        self._thread = threading.local()
        self._calls: Counter[str] = Counter()
        self._number = 0
        self._found = False
        self._excess = 0.0  # of the worst call within the tolerances
        self._files: dict[int, int] = {}
        if self._watch.compare:
            # The place in the program of a call within a backward pass.
            torch.autograd.set_detect_anomaly(True, check_nan=False)

    def attach(self, ops: Mapping[str, PlanEntry]) -> None:
        """Watch operators that C++ serves, too."""
        for op in sorted(self._watch.ops & ops.keys()):
            if op.startswith("aten::") and op not in python_kernels.implemented_operators():
                python_kernels.choose(op, None)

    def observe(
        self, op: str, chosen: python_kernels.Implementation | None
    ) -> python_kernels.Implementation | None:
        """Returns the implementation to attach for `op`: the same kernel, watched."""
        if op not in self._watch.ops:
            return chosen
        if chosen is None:
            kernel = python_kernels.require_operator(op)
            return python_kernels.Implementation(
                self._watched(op, kernel, served_by_c=True), "bisect", False, ()
            )
        return chosen._replace(fn=self._watched(op, chosen.fn, served_by_c=False))

    def _watched(self, op: str, fn: Callable[..., Any], served_by_c: bool) -> Callable[..., Any]:
        overload = python_kernels.require_operator(op)
        compares = self._watch.compare and torch.Tag.nondeterministic_seeded not in overload.tags

        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._thread, "busy", False):
                raise UnsupportedError("flagos bisect copies and compares on native kernels")
            with self._lock:
                number, of_op = self._number, self._calls[op]
                self._number += 1
                self._calls[op] += 1
            about = Call("none", op=op, call=of_op, number=number)
            if self._watch.save == number:
                with self._aside():
                    self._save("saved", _described(about, args, kwargs), args, kwargs)
            pristine = expected = after = None
            if compares and not self._found:
                with self._aside():
                    pristine = _copied(args, kwargs)
                    after = _copied(args, kwargs)
                    expected, after = self._referred(overload, after, served_by_c)
            self._begun(about, False)
            try:
                result = fn(*args, **kwargs)
                with self._aside():
                    torch.flagos.synchronize()  # type: ignore[attr-defined]
            except NotImplementedError:
                self._begun(about, True)
                raise
            except Exception as error:
                self._note_error(about, error, args, kwargs, pristine)
                raise
            self._begun(about, True)
            if expected is not None and pristine is not None:
                with self._aside():
                    self._compare(about, pristine, (expected, after), (result, (args, kwargs)))
            return result

        return call

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """The calls of the block are not those of the program."""
        self._thread.busy = True
        try:
            with torch.no_grad():
                yield
        finally:
            self._thread.busy = False

    def _referred(
        self, overload: torch._ops.OpOverload, given: Any, served_by_c: bool
    ) -> tuple[Any, Any]:
        """The reference's results, and the arguments after the call; None if the reference refuses the call."""
        op = str(overload.name())
        try:
            if self._trial.reference == "cpu":
                args, kwargs = Transfer(torch.device("cpu"), _device_type(given)).tree(given)
                return measure.flat(overload(*args, **kwargs)), measure.flat((args, kwargs))
            route = contextlib.nullcontext()
            if served_by_c:
                route = flagos.route({op: "vendor|reference"})  # type: ignore[assignment]
            args, kwargs = given
            with route:
                return measure.flat(overload(*args, **kwargs)), measure.flat((args, kwargs))
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            self._write("refused", op, {"op": op, "error": reason})
            return None, None

    def _compare(self, about: Call, pristine: Any, expected: Any, actual: Any) -> None:
        differences: list[Difference] = []
        for what, ones, others in (
            ("result", expected[0], measure.flat(actual[0])),
            ("argument", expected[1], measure.flat(actual[1])),
        ):
            if len(ones) != len(others):
                reason = f"{len(others)} tensors instead of {len(ones)}"
                differences.append(Difference(True, float("inf"), reason, of=what))
            for index, (one, other) in enumerate(zip(ones, others, strict=False)):
                apart = measure.difference(one, other, of_a_kernel=True)
                if apart.excess > 0.0:
                    differences.append(replace(apart, of=f"{what} {index}"))
        excess = max((one.excess for one in differences), default=0.0)
        differs = any(one.differs for one in differences)
        if not differs and (excess == 0.0 or excess < 2 * self._excess):
            return
        call = replace(_described(about, *pristine), differences=differences)
        with self._lock:
            if differs and not self._found:
                self._found = True
                self._save("found", call, *pristine)
            elif not differs:
                self._excess = excess
                self._save("worst", call, *pristine)

    def _note_error(
        self, about: Call, error: Exception, args: Any, kwargs: Any, pristine: Any
    ) -> None:
        """Write a call that raised; the device may be lost, so that its arguments cannot be read any more."""
        with self._lock:
            if self._found:
                return
            self._found = True
        call = replace(_described(about, args, kwargs), raised=f"{type(error).__name__}: {error}")
        with self._aside():
            try:
                self._save("found", call, *(pristine or (args, kwargs)))
            except Exception as lost:
                self._write_call("found", replace(call, not_saved=f"{type(lost).__name__}: {lost}"))

    def _save(self, name: str, call: Call, args: Any, kwargs: Any) -> None:
        """Write a call: first its arguments, then its description."""
        saved = Transfer(torch.device("cpu"), _device_type((args, kwargs))).tree((args, kwargs))
        saved = pytree.tree_map(lambda x: None if isinstance(x, torch.Generator) else x, saved)
        path = self._trial.folder / f"{name}.pt"
        with whole_file.replacing(path) as file:
            torch.save({"op": call.op, "args": saved[0], "kwargs": saved[1]}, file)
        self._write_call(name, call)

    def _write_call(self, name: str, call: Call) -> None:
        assert call.op is not None
        self._write(name, call.op, call.as_dict())

    def _write(self, name: str, op: str, fields: Mapping[str, object]) -> None:
        path = self._trial.folder / f"{name}.json"
        whole_file.write(path, json.dumps({"impl": _core.explain(op)["winner"], **fields}))

    def _begun(self, call: Call, ended: bool) -> None:
        pid = os.getpid()
        with self._lock:
            if pid not in self._files:
                path = self._trial.folder / f"begun.{pid}"
                self._files[pid] = os.open(path, os.O_CREAT | os.O_WRONLY, 0o644)
            text = json.dumps(replace(call, ended=ended).as_dict()).encode()
            os.pwrite(self._files[pid], text.ljust(_BEGUN), 0)


def _device_type(given: Any) -> str:
    """The type of device that the tensors of a call are on: flagos, or the native device's."""
    types = {
        leaf.device.type for leaf in pytree.tree_leaves(given) if isinstance(leaf, torch.Tensor)
    }
    for name in ("flagos", native().device_type):
        if name in types:
            return str(name)
    return "cpu"


def _copied(args: Any, kwargs: Any) -> Any:
    source = _device_type((args, kwargs))
    index = next(
        (
            leaf.device.index
            for leaf in pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.device.type == source
        ),
        None,
    )
    device = torch.device(source if index is None else f"{source}:{index}")
    return Transfer(device, source).tree((args, kwargs))


def _described(call: Call, args: Any, kwargs: Any) -> Call:
    """The call with its arguments in words, and its place in the program."""
    named = [*((None, value) for value in args), *kwargs.items()]
    stack = [
        f"{frame.filename}:{frame.lineno} in {frame.name}: {frame.line}"
        for frame in traceback.extract_stack()
        if _HERE not in Path(frame.filename).resolve().parents
    ]
    call = replace(call, arguments=[_words(value, name) for name, value in named], stack=stack)
    node = torch._C._current_autograd_node()
    if node is not None:
        metadata: Any = node.metadata
        lines = metadata.get("traceback_") or []
        frames = [frame for line in lines if (frame := _FRAME.match(line.strip()))]
        call = replace(
            call,
            gradient_of=str(node.name()),
            forward_stack=["{}:{} in {}: {}".format(*frame.groups()) for frame in frames],
        )
    return call


def _words(value: Any, name: str | None = None) -> str:
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        words = f"{dtype}{list(value.shape)}"
        if value.layout == torch.strided and not value.is_contiguous():
            words += f" strides {list(value.stride())}"
        if value.layout == torch.strided and value.storage_offset():
            words += f" offset {value.storage_offset()}"
    elif isinstance(value, (list, tuple)) and any(isinstance(x, torch.Tensor) for x in value):
        words = "[" + ", ".join(_words(one) for one in value) + "]"
    else:
        words = repr(value)
    return words if name is None else f"{name}={words}"
