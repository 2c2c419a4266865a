"""Records FlagGems' launches for recorded calls into a pack.

Each call is made on flagos tensors of its shapes and layouts, with a kernel over the native one that records what
FlagGems' function does, as a program's third call would be. On a machine without a GPU (`without_device`) nothing runs,
and the recording is the same.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, cast
from unittest import mock

import torch

from flagos import UnsupportedError
from torch_fl import launcher, python_kernels
from torch_fl.calls import Args, Kwargs
from torch_fl.flaggems import (
    configurations,
    envelope,
    implementations,
    pack_file,
    package,
    sizes,
    tables,
)
from torch_fl.flaggems.pack_file import Kernel, PackedCall
from torch_fl.launcher import compiled
from torch_fl.native import native
from torch_fl.python_kernels import attachment, capture
from torch_fl_tools.flaggems import checker
from torch_fl_tools.flaggems.packs import tuning, without_device
from torch_fl_tools.flaggems.recorded.inputs import Inputs
from torch_fl_tools.flaggems.recorded.tuning import Unfit, choosing
from torch_fl_tools.flaggems.recorded.zones import Zones
from torch_fl_tools.records.facts import DEVICE, Call, TensorFacts


class NotPacked(Exception):
    """A call that cannot be in a pack; the message says why."""


@dataclass
class Made:
    """The contents of a pack in the making."""

    kernels: list[Kernel] = field(default_factory=list)
    calls: dict[str, dict[tuple[int, ...], PackedCall]] = field(default_factory=dict)
    of_call: dict[str, list[tuple[Call, tuple[int, ...]]]] = field(default_factory=dict)
    """By overload: recorded calls, with the signatures by which they were packed."""
    left_out: dict[str, Counter[str]] = field(default_factory=dict)
    """By overload and reason: how many recorded calls are not in the pack."""
    configurations: pack_file.Configurations = field(default_factory=dict)

    def leave_out(self, call: Call, reason: str) -> None:
        """Note a call that is not in the pack."""
        self.left_out.setdefault(call.overload, Counter())[reason] += 1


class Maker:
    """Makes recordings of the calls of one overload after the other.

    `target` is the chip that is compiled for where no device is there. Tuned kernels run the configuration that `named`
    names, or the fastest of as many as `tuned` that is right for the call, or the one that was verified.
    """

    def __init__(
        self,
        target: without_device.Chip | None,
        named: configurations.Named | None = None,
        tuned: int = 1,
    ) -> None:
        self.made = Made()
        self._target = target
        self._named = named or {}
        self._tuned = tuned
        self._checker = checker.Checker()
        self._numbers: dict[tuple[bytes, str], int] = {}
        self._handles: dict[int, int] = {}  # of functions: the number of the kernel
        self._device, self._first = torch.device("flagos"), torch.device("flagos", 0)

    def add(self, overload: str, calls: Iterable[Call], on_call: Callable[[Call], None]) -> None:
        """Pack the calls of a verified overload that it may serve."""
        within = within_conditions(overload)
        with self._recorder(overload) as recorder:
            for call in calls:
                on_call(call)
                try:
                    self._add(recorder, call, within)
                except NotPacked as error:
                    self.made.leave_out(call, str(error))

    def _add(self, recorder: _Recorder, call: Call, within: list[str]) -> None:
        # The signature has whether autograd records, and the device as the program names it.
        named = DEVICE in (*call.args, *call.kwargs.values())
        devices = (self._device, self._first) if named else (self._device,)
        signatures = [
            signature
            for device in devices
            for signature in self._signatures(recorder, call, within, device)
        ]
        self.made.of_call.setdefault(call.overload, []).extend((call, s) for s in signatures)
        for kernel, chosen in recorder.chosen.items():
            self.made.configurations.setdefault(kernel, {}).update(chosen)

    def _signatures(
        self, recorder: _Recorder, call: Call, within: list[str], device: torch.device
    ) -> list[tuple[int, ...]]:
        args, kwargs = self._arguments(call, device)
        held = envelope.holding(call.overload, args, kwargs, within)
        if broken := [name for name in within if name not in held]:
            raise NotPacked(f"it was not verified there: {_named(broken[0])}")
        op = python_kernels.require_operator(call.op)
        if self._tuned > 1:
            known = self.made.configurations
            recorder.number = tuning.fastest(call, self._tuned, self._checker, known)
        found = self.made.calls.setdefault(call.overload, {})
        signatures: list[tuple[int, ...]] = []
        for gradients in (True, False):
            with torch.set_grad_enabled(gradients):
                signature, words = recorder.of_call(lambda: op(*args, **kwargs), call)
            found[signature] = self._packed(signature, words)
            signatures.append(signature)
        return signatures

    def _packed(self, signature: tuple[int, ...], words: list[int]) -> PackedCall:
        recording, places = list(words), launches(words)
        for place in places:
            recording[place] = self._handles[recording[place]]
        return PackedCall(signature, tuple(recording), tuple(places))

    def _arguments(self, call: Call, device: torch.device) -> tuple[Args, Kwargs]:
        if self._target is None:
            return Inputs(call, device).make(Zones(device, 0, around=0))
        return _without_values(call, device)

    def note(self, kernel: Any) -> None:
        """Number a kernel that was launched."""
        if kernel.function in self._handles:
            return
        image = Kernel(kernel.asm["cubin"], kernel.metadata.name, kernel.metadata.shared)
        number = self._numbers.setdefault((image.image, image.name), len(self.made.kernels))
        if number == len(self.made.kernels):
            self.made.kernels.append(image)
        self._handles[kernel.function] = number

    @staticmethod
    @contextmanager
    def launches_by_triton() -> Iterator[None]:
        """FlagGems, imported, launches by Triton's own launcher meanwhile, which calls recorders.

        Rust's keeps the kernel of a tuned kernel's first configuration, and needs a driver. Programs have no line
        numbers, with which come the times of files: the same calls make the same pack.
        """
        package.load()
        launcher.uninstall()
        compiled.install()
        try:
            with mock.patch.dict(os.environ, TRITON_DISABLE_LINE_INFO="1"):
                yield
        finally:
            launcher.install()

    @contextmanager
    def _recorder(self, overload: str) -> Iterator[_Recorder]:
        """A kernel over the native one of an overload, which records what FlagGems' function does."""
        # One configuration for a key, as in a program.
        named = self._named or self.made.configurations
        recorder = _Recorder(self, overload, self._target is not None, named)
        op = f"aten::{overload}"
        attachment.attach_kernel(
            op, recorder, implementations.BACKEND, on_native=True, recorded=True
        )
        try:
            yield recorder
        finally:
            attachment.detach(op)

    def close(self) -> None:
        """End the process that judged configurations."""
        self._checker.close()


class _Recorder:
    """In the place of an operator's kernel: serves calls, and keeps of the last one what a pack has of it."""

    def __init__(
        self,
        maker: Maker,
        overload: str,
        without_a_device: bool,
        named: configurations.Named,
    ) -> None:
        device_type = native().device_type
        assert device_type is not None, "packs are made where torch has the native device"
        self.outcome: tuple[tuple[int, ...], list[int]] | NotPacked | None = None
        self.chosen: pack_file.Configurations = {}
        self._maker = maker
        self._function = implementations.function(overload)
        self._run = attachment.OnNativeTensors(f"aten::{overload}", self._function, device_type)
        self._without_a_device = without_a_device
        self._named = named
        self.number = 0  # the configuration to begin with

    def of_call(self, run: Callable[[], Any], call: Call) -> tuple[tuple[int, ...], list[int]]:
        """The signature and the recording of one call. Raises NotPacked, and RuntimeError where it loses the device."""
        self.outcome = None
        raised: Exception | None = None
        try:
            run()
        except Exception as error:
            raised = error
        if raised is not None and native().lost(raised):
            raise RuntimeError(f"the device was lost by {call}: {raised}") from raised
        outcome = cast("tuple[tuple[int, ...], list[int]] | NotPacked | None", self.outcome)
        if isinstance(outcome, NotPacked):
            raise outcome
        if raised is not None:
            raise NotPacked(f"it raises {implementations.message(raised)}") from raised
        if outcome is None:
            raise NotPacked("torch serves the call by other operators")
        return outcome

    def __call__(self, keys: torch._C.DispatchKeySet, *args: Any, **kwargs: Any) -> Any:
        signature = tuple(torch.ops.flagos.call_signature())
        if not signature:
            self.outcome = NotPacked("the call has no signature")
            return self._function(*args, **kwargs)
        inputs = self._run.inputs(args, kwargs)
        if self._without_a_device:
            args, kwargs = without_device.shown((args, kwargs))
        try:
            with launcher.recording(lambda kernel, *_: self._maker.note(kernel)):
                result, words = self._recorded(inputs, args, kwargs)
        except UnsupportedError as error:
            self.outcome = NotPacked(f"FlagGems declines it: {error}")
            raise
        self.outcome = (
            NotPacked(str(words)) if isinstance(words, capture.Refusal) else (signature, words)
        )
        return result

    def _recorded(
        self, inputs: list[torch.Tensor], args: Any, kwargs: Any
    ) -> tuple[Any, list[int] | capture.Refusal]:
        """As in a program: the first call compiles, and two more have to be recorded alike."""
        number = self.number
        while True:
            try:
                with choosing(number, self._named), self._shown():
                    self._run(*args, **kwargs)
                with choosing(number, self._named) as choice, self._shown() as shown:
                    found = [
                        capture.record(self._run, inputs, args, kwargs, self._without_a_device)
                        for _ in range(2)
                    ]
            except Unfit:
                number += 1
                if number >= choice.configurations:
                    raise UnsupportedError(
                        "the chip takes no configuration of its kernels"
                    ) from None
                continue
            break
        self.chosen = choice.chosen
        (_, before), (result, words) = found
        if isinstance(shown, without_device.ShownAsCuda) and shown.on_host is not None:
            return result, capture.Refusal(f"it calls {shown.on_host}")
        if isinstance(words, list) and words != before:
            return result, capture.Refusal("it launches something else each time")
        return result, words

    def _shown(self) -> AbstractContextManager[Any]:
        return without_device.ShownAsCuda() if self._without_a_device else nullcontext()


def within_conditions(overload: str) -> list[str]:
    """The conditions within which a verified overload may serve, sizes included."""
    within = envelope.ordered(implementations.conditions(overload))
    known = tables.verified_sizes(overload)
    return [*within, sizes.condition(known)] if known else within


def _named(condition: str) -> str:
    return "the sizes" if condition.startswith(sizes.PREFIX) else condition


def launches(words: list[int]) -> list[int]:
    """The places of the handles of functions in a recording."""
    at = 1 + words[0]
    count, at = words[at], at + 1
    found = []
    for _ in range(count):
        kind, at = words[at], at + 1
        if kind == capture._LAUNCH:
            found.append(at)
            at += 1 + 3 * 3 + 2  # function, grid, block and cluster, shared memory and flags
            parameters, at = words[at], at + 1
            for _ in range(parameters):
                at = _after_parameter(words, at)
        else:
            at = _after_place(words, at)
            at = at + 2 if kind == capture._FILL else _after_place(words, at)
    return found


def _after_parameter(words: list[int], at: int) -> int:
    kind = words[at + 1]
    if kind == capture._CONSTANT:
        return at + 3
    if kind == capture._POINTER:
        return at + 4
    rank = words[at + 5]
    return at + 6 + 3 * rank + 2


def _after_place(words: list[int], at: int) -> int:
    rank = words[at + 3]
    return at + 3 + 2 * (rank + 1)


def _without_values(call: Call, device: torch.device) -> tuple[Args, Kwargs]:
    """Arguments of the recorded layout, whose values nobody reads."""
    shared: dict[int, torch.Tensor] = {}
    sizes_of: dict[int, int] = {}
    for facts in call.tensors():
        if facts.memory is not None:
            number, place = facts.memory
            sizes_of[number] = max(sizes_of.get(number, 0), place + facts.extent)

    def bytes_of(nbytes: int) -> torch.Tensor:
        return torch.empty(nbytes, dtype=torch.uint8, device=device)

    def value(given: Any) -> Any:
        if isinstance(given, TensorFacts):
            if given.on_host:
                return torch.zeros(given.shape, dtype=given.dtype)
            if given.memory is None:
                base, at = bytes_of(given.offset + given.extent), given.offset
            else:
                number, at = given.memory
                base = shared.setdefault(number, bytes_of(sizes_of[number]))
            typed = torch.empty(0, dtype=given.dtype, device=device)
            if at % given.dtype.itemsize or not math.isfinite(at):
                raise NotPacked("an argument lies at no multiple of its elements' size")
            return typed.set_(
                base.untyped_storage(), at // given.dtype.itemsize, given.shape, given.strides
            )
        if isinstance(given, tuple):
            return [value(one) for one in given]
        return device if isinstance(given, torch.device) and given == DEVICE else given

    return tuple(value(one) for one in call.args), {n: value(v) for n, v in call.kwargs.items()}


def contents(made: Made, about: pack_file.About) -> pack_file.Contents:
    """The pack of what was made; `about` is what its header tells besides."""
    operators = {}
    calls = {name: list(found.values()) for name, found in made.calls.items() if found}
    for overload in calls:
        known = tables.verdicts()[overload]
        verified = {
            name: value
            for name, value in known.items()
            if name in ("verdict", "cases", "only", "sizes", "first") and value
        }
        operators[overload] = {
            "function": implementations.registered()[overload],
            "verified": verified,
        }
    left_out = {name: dict(reasons) for name, reasons in sorted(made.left_out.items())}
    return pack_file.Contents(
        about={
            **about,
            "operators": operators,
            "left_out": left_out,
            "configurations": made.configurations,
        },
        kernels=made.kernels,
        calls=calls,
    )
