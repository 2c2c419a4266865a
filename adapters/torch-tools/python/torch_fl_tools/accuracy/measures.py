"""Two runs of a program beside each other: by how much their outputs differ.

Of a tensor n on native kernels and c in the other run:

- `relative`: ‖c - n‖ / ‖n‖, and `largest`: max |c - n| / rms(n); of a single number `scalar`: |c - n| / |n|
- `other`: the share of integers that are others
- of logits: `kl_mean`, `kl_p99`, `kl_max` of KL(softmax n ‖ softmax c) over positions; `margin`: the largest distance
  of n's most likely token from its second, of the rms, where c's most likely token is another; `perplexity`: |exp(c -
  n) - 1| of the mean negative log-likelihoods of the given tokens

Elements that are infinite in both are equal; NaN that only one run has is a flaw.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch

from torch_fl_tools.accuracy import outputs
from torch_fl_tools.accuracy.outputs import Output
from torch_fl_tools.accuracy.results import Compared, Flaw, Measured, Place

#: Units of the dtype below which errors mean nothing, of norms, and of the worst element or a single number.
_OF_NORM, _OF_ONE = 4, 16
_KL_ROWS = 256


def compare(expected: Path, actual: Path) -> Compared:
    """The outputs of a run beside those of the run with native kernels, by the folders of the runs."""
    found = Compared()
    ours, theirs = outputs.processes(expected), outputs.processes(actual)
    if ours.keys() != theirs.keys():
        found.flaws.append(Flaw(f"{len(theirs)} processes yield outputs instead of {len(ours)}"))
    for process in sorted(ours.keys() & theirs.keys()):
        _Process(process, found).compare(
            list(outputs.read(ours[process])), list(outputs.read(theirs[process]))
        )
    found.equal = found.equal and not found.flaws and not found.apart
    return found


class _Process:
    """The outputs of one process in both runs, in their order."""

    def __init__(self, process: str, found: Compared) -> None:
        self._process, self._found = process, found
        self._apart = False  # the tokens that the model was given are others
        self._differs = False

    def compare(self, expected: list[Output], actual: list[Output]) -> None:
        """Compare the n-th output of a name with the n-th of the name."""
        others = {(one.name, one.call): one for one in actual}
        ours = {(one.name, one.call) for one in expected}
        for one in expected:
            other = others.get((one.name, one.call))
            place = Place(one.name, one.call, self._process)
            if other is not None:
                self._follow(one, other, place)
            if self._apart:
                self._found.apart += 1
            elif other is None:
                self._flaw("the run did not come to it", place)
                break  # what follows is missing, too
            else:
                self._one(one, other, place)
        more = [one for one in actual if (one.name, one.call) not in ours]
        if more and not self._apart:
            place = Place(more[0].name, more[0].call, self._process)
            self._flaw(f"the first run did not come to it: {len(more)} outputs more", place)

    def _flaw(self, message: str, place: Place) -> None:
        self._found.flaws.append(Flaw(message, place))

    def _follow(self, one: Output, other: Output, place: Place) -> None:
        """Notice that a model is given other tokens, and that it begins anew with the same."""
        if one.tokens is None and other.tokens is None:
            return
        same = one.tokens == other.tokens
        if same and one.positions > 1:
            self._apart = False
        elif not same and not self._apart:
            self._apart = True
            if not self._differs:
                self._flaw(
                    "the model was given other tokens than in the first run, and every output before was equal: the "
                    "tokens were chosen otherwise",
                    place,
                )

    def _one(self, one: Output, other: Output, place: Place) -> None:
        if one.shape != other.shape or one.dtype != other.dtype:
            self._flaw(f"{other} instead of {one}", place)
            return
        self._found.outputs += 1
        a, b = one.form(), other.form()
        if a["rows"].shape != b["rows"].shape or a["every"] != b["every"]:
            self._flaw("other parts of it were kept", place)
            return
        self._found.nan += int((torch.isnan(a["rows"]) & torch.isnan(b["rows"])).sum())
        if not _same(a, b):
            self._found.equal, self._differs = False, True
            flaws = len(self._found.flaws)
            self._found.measured += self._tensors(a, b, place)
            if len(self._found.flaws) > flaws:
                return
        if one.logits:
            self._logits(a, b, place)

    def _tensors(self, a: dict[str, Any], b: dict[str, Any], place: Place) -> list[Measured]:
        """The measures of rows, and of the sums of all rows where not all are kept."""
        found: list[Measured] = []
        for part in ("rows", "mean", "rms"):
            if part not in a:
                continue
            expected, actual = a[part], b[part]
            eps = _eps(a["rows"].dtype)
            if not (expected.is_floating_point() or expected.is_complex()):
                if expected.numel():
                    share = float((expected != actual).double().mean())
                    found.append(Measured("other", share, place, 0.0))
                continue
            apart = self._gap(expected, actual, place)
            if apart is None:
                return found
            gap, size = apart
            if expected.numel() == 1:
                scalar = _ratio(float(gap.max()), float(size.max()))
                found.append(Measured("scalar", scalar, place, _OF_ONE * eps))
                continue
            rms = float(size.square().mean().sqrt())
            error = _ratio(float(gap.square().mean().sqrt()), rms)
            found.append(Measured("relative", error, place, _OF_NORM * eps))
            worst = _ratio(float(gap.max()), rms)
            found.append(Measured("largest", worst, place, _OF_ONE * eps))
        return found

    def _gap(
        self, expected: torch.Tensor, actual: torch.Tensor, place: Place
    ) -> tuple[torch.Tensor, torch.Tensor] | None:
        """|c - n| and |n| where both are finite and else 0; None with a flaw if only one of them is."""
        wide = torch.complex128 if expected.is_complex() else torch.float64
        n, c = expected.to(wide), actual.to(wide)
        both_nan = torch.isnan(n) & torch.isnan(c)
        alike = (n == c) | both_nan
        finite = torch.isfinite(n) & torch.isfinite(c)
        wrong = ~alike & ~finite
        if bool(wrong.any()):
            nans = int((torch.isnan(c) & wrong).sum())
            before = int((torch.isnan(n) & wrong).sum())
            what = f"{nans} NaN" if nans else f"{int(wrong.sum()) - before} infinite or finite"
            if before:
                what += f", and {before} are no NaN that are NaN there"
            self._flaw(
                f"{what} of {expected.numel()} elements, otherwise than in the first run", place
            )
            return None
        zero = torch.zeros((), dtype=torch.float64)
        return torch.where(finite, (c - n).abs(), zero), torch.where(finite, n.abs(), zero)

    def _logits(self, a: dict[str, Any], b: dict[str, Any], place: Place) -> None:
        found, eps = self._found, _eps(a["rows"].dtype)
        other = a["top"] != b["top"]
        found.tokens += other.numel()
        found.others += int(other.sum())
        rms = float(a["rows"].double().nan_to_num(0, 0, 0).square().mean().sqrt())
        margin = float(a["margin"][other].double().max()) if bool(other.any()) else 0.0
        self._add("margin", _ratio(margin, rms), place, 2 * _OF_ONE * eps)
        if _same(a, b):
            values = (0.0, 0.0, 0.0)
        else:
            kl = _kl(a["rows"], b["rows"])
            values = (float(kl.mean()), float(torch.quantile(kl, 0.99)), float(kl.max()))
        # A logit that is off by d moves KL by d²/2 at most.
        floor = (_OF_ONE * eps * rms) ** 2 / 2
        for name, value in zip(("kl_mean", "kl_p99", "kl_max"), values, strict=True):
            self._add(name, value, place, floor)
        before, now = a["nll"], b["nll"]
        if before is not None and now is not None and math.isfinite(before) and math.isfinite(now):
            # The logits' own unit moves each log-likelihood by as much.
            apart = abs(math.expm1(min(now - before, 700.0)))
            self._add("perplexity", apart, place, _OF_ONE * eps * max(1.0, rms))

    def _add(self, measure: str, value: float, place: Place, floor: float) -> None:
        self._found.measured.append(Measured(measure, value, place, floor))


def _eps(dtype: torch.dtype) -> float:
    floating = dtype.is_floating_point or dtype.is_complex
    return float(torch.finfo(dtype).eps) if floating else 0.0


def _ratio(value: float, of: float) -> float:
    """Their quotient; what differs from zero differs by all that it is."""
    if value == 0.0:
        return 0.0
    return value / of if of else 1.0 + value


def _same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Whether two forms are equal, with NaN at the same places."""
    pairs = ((a[name], b[name]) for name in ("rows", "mean", "rms") if name in a)
    return all(bool(((n == c) | (torch.isnan(n) & torch.isnan(c))).all()) for n, c in pairs)


def _kl(expected: torch.Tensor, actual: torch.Tensor) -> torch.Tensor:
    """KL(softmax n ‖ softmax c) of each row; what is not finite in n has probability zero."""
    parts = []
    for n, c in zip(expected.split(_KL_ROWS), actual.split(_KL_ROWS), strict=True):
        p = n.double().log_softmax(-1)
        q = c.double().log_softmax(-1)
        each = torch.where(p > -math.inf, p.exp() * (p - q), torch.zeros((), dtype=torch.float64))
        parts.append(each.sum(-1).clamp(min=0).nan_to_num(0.0, 1e300))
    return torch.cat(parts)
