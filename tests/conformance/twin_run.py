"""Running one call on both devices under the same seed and comparing what came out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.testing._internal.common_utils import DeterministicGuard

from torch_fl_tools.comparing.transfer import Transfer

from .observation import (
    EXACT,
    Mismatch,
    Observation,
    Tolerance,
    compare,
    observe,
    tensors_in,
    versions,
)

# A body receives the transfer to its device (for further inputs it makes itself) and its
# inputs there. It returns whatever shall be compared.
Body = Callable[[Transfer, Any], Any]


# How often the reference is run to see whether it agrees with itself.
_REPEATS = 4
# Of the error that `torch.use_deterministic_algorithms` documents.
_NO_DETERMINISTIC = "does not have a deterministic implementation"


@dataclass(frozen=True)
class Call:
    """One call to compare: ``body`` run on ``inputs``, a tree of host tensors.

    ``outputs_may_stay_on_host`` accepts outputs on the host, ``may_bump`` accepts a version counter
    that moves on the device alone.
    """

    body: Body
    inputs: Any
    outputs_may_stay_on_host: bool = False
    may_bump: bool = False


@dataclass(frozen=True)
class Verdict:
    """The outcome of one call.

    ``reference_error`` is set when the reference raised, in which case the device must raise an
    exception of the same type and nothing else is compared. ``nondeterministic`` says that the
    reference differs from itself, and that the device is within torch's own tolerances of it.
    """

    mismatches: list[Mismatch] = field(default_factory=list)
    reference_error: str | None = None
    nondeterministic: bool = False


@dataclass(frozen=True)
class _Outcome:
    inputs: Any
    output: Any = None
    before: dict[int, int] = field(default_factory=dict)
    error: Exception | None = None
    random_state: torch.Tensor | None = None

    def observe(self) -> Observation:
        return observe(self.inputs, self.output, self.before)


def seed_everything(seed: int, device: torch.device | None = None) -> None:
    """Seeds Python, NumPy, the host's generator and, if given, those of ``device``.

    Does what ``torch.manual_seed`` does, except for CUDA where nothing runs: there every call
    formats a stack trace, which would take half the time of a sweep.
    """
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)
    if device is not None and device.type != "cpu":
        torch.get_device_module(device).manual_seed_all(seed)


class TwinRun:
    """Compares calls between a reference device and a device under test.

    ``close`` compares values within tolerances where they would have to agree bit by bit.
    """

    def __init__(
        self, device: str, reference: str = "cpu", seed: int = 1, *, close: bool = False
    ) -> None:
        self.device = torch.device(device)
        self.reference = torch.device(reference)
        self.seed = seed
        self.close = close

    def check(self, call: Call, tolerance: Tolerance = EXACT) -> Verdict:
        """Runs ``call`` on the reference, then on the device, and compares."""
        if self.close and tolerance.compare == "bits":
            tolerance = replace(_within_limits(tolerance, call), of_halves=True)
        expected = self._run(call, self.reference)
        try:
            actual = self._run(call, self.device)
            return self._judge(call, tolerance, expected, actual)
        except Exception as error:  # the device failed at what only the comparison asked of it
            text = f"{type(error).__name__}: {_one_line(error)}"
            return Verdict([Mismatch("comparison", f"copying to or from the device: {text}")])

    def _judge(
        self, call: Call, tolerance: Tolerance, expected: _Outcome, actual: _Outcome
    ) -> Verdict:
        if expected.error is not None:
            text = f"{type(expected.error).__name__}: {expected.error}"
            return Verdict(self._compare_errors(expected.error, actual.error), text)
        if actual.error is not None:
            kind = type(actual.error).__name__
            return Verdict([Mismatch("error", f"raised {kind}: {_one_line(actual.error)}")])
        mismatches = self._differences(call, tolerance, expected, actual, call.may_bump)
        mismatches += _compare_random_states(expected.random_state, actual.random_state)
        if any(mismatch.kind == "value" for mismatch in mismatches):
            unstable = self._reference_against_itself(call, tolerance)
            mismatches += unstable
            if unstable and self.reference.type != "cpu" and tolerance.compare == "bits":
                # Kernels with atomic additions give other bits each time: what can be asked is that
                # the device is as close to the reference as the reference is to itself.
                close = _within_limits(tolerance, call)
                if not self._differences(call, close, expected, actual, may_bump=True):
                    return Verdict(nondeterministic=True)
        return Verdict(mismatches)

    def _differences(
        self,
        call: Call,
        tolerance: Tolerance,
        expected: _Outcome,
        actual: _Outcome,
        may_bump: bool,
    ) -> list[Mismatch]:
        return compare(
            expected.observe(),
            actual.observe(),
            tolerance,
            device_type=self.device.type,
            reference_type=self.reference.type,
            outputs_may_stay_on_host=call.outputs_may_stay_on_host,
            may_bump=may_bump,
        )

    def _run(self, call: Call, device: torch.device) -> _Outcome:
        transfer = Transfer(device, self.reference.type)
        inputs = transfer.tree(call.inputs)
        before = versions(inputs)
        seed_everything(self.seed, device)
        try:
            output = call.body(transfer, inputs)
        except Exception as error:  # any exception is an outcome to compare
            return _Outcome(inputs, error=error)
        return _Outcome(inputs, output, before, random_state=_random_state(device))

    def _compare_errors(self, expected: Exception, actual: Exception | None) -> list[Mismatch]:
        wanted = f"{type(expected).__name__}: {_one_line(expected)}"
        if actual is None:
            return [Mismatch("error", f"did not raise, expected {wanted}")]
        if type(actual) is not type(expected):
            got = f"{type(actual).__name__}: {_one_line(actual)}"
            return [Mismatch("error", f"raised {got}, expected {wanted}")]
        return []

    def _reference_against_itself(self, call: Call, tolerance: Tolerance) -> list[Mismatch]:
        """Tells a wrong device from an operator that is not deterministic on the reference."""
        first, *others = (self._run(call, self.reference) for _ in range(_REPEATS))
        for other in others:
            if first.error is not None or other.error is not None:
                return []
            differs = compare(
                first.observe(),
                other.observe(),
                tolerance,
                device_type=self.reference.type,
                reference_type=self.reference.type,
                outputs_may_stay_on_host=call.outputs_may_stay_on_host,
                may_bump=True,
            )
            if any(mismatch.kind == "value" for mismatch in differs):
                text = f"the reference differs from itself: {differs[0].message}"
                return [Mismatch("nondeterministic", text)]
        # Few additions at one place seldom change their order: torch says itself which kernels are not deterministic.
        with DeterministicGuard(True):
            error = self._run(call, self.reference).error
        if isinstance(error, RuntimeError) and _NO_DETERMINISTIC in str(error):
            return [Mismatch("nondeterministic", f"the reference says so: {_one_line(error)}")]
        return []


def _within_limits(tolerance: Tolerance, call: Call) -> Tolerance:
    """Limits for sums in another order: torch's own, but for half precision where terms cancel."""
    halves = (torch.float16, torch.bfloat16)
    if any(tensor.dtype in halves for tensor in tensors_in(call.inputs)):
        return replace(tolerance, compare="close", rtol=2e-2, atol=1e-2)
    return replace(tolerance, compare="close")


def _random_state(device: torch.device) -> torch.Tensor | None:
    if device.type == "cpu":
        return torch.get_rng_state()
    module = torch.get_device_module(device)
    getter = getattr(module, "get_rng_state", None)
    return None if getter is None else getter()


def _compare_random_states(
    expected: torch.Tensor | None, actual: torch.Tensor | None
) -> list[Mismatch]:
    if expected is None or actual is None or torch.equal(expected, actual):
        return []
    return [Mismatch("random state", "the generators' states differ after the call")]


def _one_line(error: Exception, limit: int = 300) -> str:
    text = " ".join(str(error).split())
    return text if len(text) <= limit else f"{text[:limit]}..."
