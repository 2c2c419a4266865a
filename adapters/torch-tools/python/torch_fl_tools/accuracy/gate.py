"""The runs of `flagos accuracy`: native kernels, their noise, the routes, and a search if these are not as right."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from flagos import whole_file
from flagos.cli.output import CommandError
from torch_fl_tools.accuracy import limits as limiting
from torch_fl_tools.accuracy import measures, native, outputs
from torch_fl_tools.accuracy import score as scoring
from torch_fl_tools.accuracy.limits import Limits
from torch_fl_tools.accuracy.native import Variation
from torch_fl_tools.accuracy.results import (
    MEASURES,
    Compared,
    Flaw,
    Judged,
    Measured,
    Noise,
    Place,
    Result,
)
from torch_fl_tools.accuracy.settings import Settings
from torch_fl_tools.bisect import calls
from torch_fl_tools.bisect.findings import Outcome
from torch_fl_tools.bisect.session import Over, Session
from torch_fl_tools.bisect.state import Run
from torch_fl_tools.bisect.trial import Observer

_SCORE = Place("score", 0)
_SPREAD = 1e-4  # relative, of two runs that are meant to be equal


@dataclass(frozen=True)
class Options:
    """What the command was asked for."""

    multiple: float
    roundings: int
    settings: Settings
    score: str | None = None
    score_within: float = 0.0
    bisect: bool = True


class Gate:
    """One program and its routes."""

    def __init__(self, session: Session, options: Options, tell: Callable[[str], None]) -> None:
        self._session, self._options, self._tell = session, options, tell
        self._score = None if options.score is None else scoring.load(options.score)
        self._native: Run | None = None
        self._native_score: float | None = None
        self._limits = Limits(options.multiple, [])
        self._noise: list[Noise] = []
        session.by_values = True

    def run(self) -> Result:
        """Judge the routes. Raises CommandError for a program that cannot be judged."""
        try:
            result = self._gate()
        except Over as over:
            raise CommandError(str(over), "name more of --max-runs") from over
        if not result.passes and result.verdict != "not deterministic" and self._options.bisect:
            self._search(result)
        return result

    def _gate(self) -> Result:
        reference = self._reference()
        again = self._natively("native kernels, again")
        if again.outcome.fails:
            spread = Compared(flaws=[Flaw(again.outcome.detail)])
        else:
            spread = self._compared(again)
        random = self._not_deterministic(spread)
        if random is not None:
            return random
        self._limits = Limits(self._options.multiple, [spread, *self._variations()])
        return self._judged(reference)

    # ---- native kernels

    def _natively(self, key: str, variation: Variation | None = None) -> Run:
        settings = self._options.settings
        environment: dict[str, str] = {}
        if variation is not None:
            settings = replace(settings, rounding=variation.rounding, flags=variation.flags)
            environment = variation.environment
        return self._session.trial(
            key, frozenset(), environment=environment, observer=_observer(settings)
        )

    def _reference(self) -> Run:
        run = self._native = self._natively("native kernels")
        if run.outcome.fails:
            raise CommandError(
                f"the program fails on native kernels ({run.outcome.detail}), so that there is nothing to compare with",
                f"its output is in {run.folder}",
            )
        if not outputs.processes(run.folder):
            raise CommandError(
                "the program yields nothing to compare: it called no torch.nn.Module and no backward pass, and marked "
                "nothing" + (", of the names of --only" if self._options.settings.only else ""),
                'mark what counts: torch.flagos.mark("logits", logits)',
            )
        return run

    def _not_deterministic(self, spread: Compared) -> Result | None:
        """The result if two equal runs differ by more than the order of atomic additions makes them."""
        apart = [
            f"{one.place}: {MEASURES[one.measure]} {one.value:.3g}"
            for one in spread.measured
            if one.measure in ("relative", "scalar", "other")
            and one.value > max(_SPREAD, one.floor)
        ]
        flaws = [str(one) for one in spread.flaws]
        if not apart and not flaws:
            return None
        message = (
            f"two runs of native kernels differ: {[*flaws, *apart][0]}; seed what is random, and read what is given in "
            "a fixed order"
        )
        judged = limiting.worst(self._limits.judged(spread))
        return Result(
            "not deterministic", message, self._options.multiple, judged=judged, flaws=flaws
        )

    def _variations(self) -> list[Compared]:
        found = []
        for variation in native.variations(self._vendor(), self._options.roundings):
            key = f"native kernels, {variation.name}"
            run = self._natively(key, variation)
            if run.outcome.fails:
                self._left_out(variation.name, run.outcome.detail)
                continue
            compared = self._compared(run)
            if compared.flaws:
                self._left_out(variation.name, str(compared.flaws[0]))
                continue
            found.append(compared)
            largest = {name: compared.largest(name) for name in MEASURES}
            self._noise.append(
                Noise(variation.name, {n: v for n, v in largest.items() if v}, compared.apart)
            )
        if not found:
            raise CommandError(
                "no other run of native kernels shows their noise: "
                + "; ".join(f"{one.run}: {one.left_out}" for one in self._noise),
                "--roundings 3 makes three runs that round otherwise",
            )
        return found

    def _left_out(self, name: str, why: str) -> None:
        self._tell(f"{name}: left out: {why}")
        self._noise.append(Noise(name, {}, 0, why))

    def _vendor(self) -> str:
        assert self._native is not None
        path = min(self._native.folder.glob("plan.*.json"))
        return str(json.loads(path.read_text())["vendor"])

    # ---- comparisons

    def _compared(self, run: Run) -> Compared:
        """A run that passed beside the first; its values are removed afterwards."""
        assert self._native is not None
        path = run.folder / "compared.json"
        if path.exists():
            return Compared.read(json.loads(path.read_text()))
        compared = measures.compare(self._native.folder, run.folder)
        if self._score is not None and self._options.score is not None:
            name, function = self._options.score, self._score
            if self._native_score is None:
                self._native_score = scoring.of(function, name, self._native.folder)
            now = scoring.of(function, name, run.folder)
            value = abs(now - self._native_score)
            compared.measured.append(Measured("score", value, _SCORE, self._options.score_within))
            whole_file.write(run.folder / "score.json", json.dumps([self._native_score, now]))
        whole_file.write(path, json.dumps(compared.as_dict()))
        outputs.forget(run.folder)
        return compared

    def _judged(self, reference: Run) -> Result:
        run, kept = self._routed(reference)
        called = self._session.called(run.folder)
        result = Result("within", "", self._options.multiple, noise=self._noise)
        result.operators = [op for op in called if op not in kept]
        result.on_native = sorted(set(kept) & _counted(run.folder))
        if run.outcome.fails:
            result.verdict = "fails"
            result.message = (
                f"the program fails on the routes ({run.outcome.detail}), and not on native kernels"
            )
            return result
        compared = self._compared(run)
        judged = self._limits.judged(compared)
        result.judged, result.beyond = limiting.worst(judged), limiting.first_beyond(judged)
        result.flaws = [str(one) for one in compared.flaws]
        result.outputs, result.outputs_apart = compared.outputs, compared.apart
        result.tokens, result.tokens_other, result.nan = (
            compared.tokens,
            compared.others,
            compared.nan,
        )
        result.score = _pair(run.folder / "score.json")
        self._say(result, compared)
        return result

    def _routed(self, reference: Run) -> tuple[Run, list[str]]:
        """The run with the routes of the configuration, and the operators that stay native all the same."""
        self._session.see(reference.folder)
        kept = self._session.left_out(sorted(self._session.routed))
        keep = None if not kept else frozenset(self._session.routed) - frozenset(kept)
        key = "routed as configured" + (", but what is random" if kept else "")
        return self._session.trial(
            f"{key}, observed", keep, observer=_observer(self._options.settings)
        ), kept

    def _say(self, result: Result, compared: Compared) -> None:
        if result.flaws:
            result.verdict, result.message = "beyond", result.flaws[0]
        elif result.beyond:
            result.verdict, result.message = "beyond", _words(result.beyond[0])
        elif compared.equal:
            same = "" if result.operators else ": no operator was called by another route"
            result.verdict = "equal"
            result.message = f"every output is equal to native kernels' in every bit{same}"
        else:
            result.message = "every output is within native kernels' own noise"

    # ---- the search

    def _search(self, result: Result) -> None:
        self._tell(f"{result.message}: looking for the operators")
        session = self._session
        session.judge = self._outcome
        session.observer = _observer(self._options.settings)
        search = result.search = session.run()
        calls.find_all(session, search.causes, self._tell)

    def _outcome(self, run: Run) -> Outcome:
        """Whether a run of the search, which ended well, is as right as native kernels."""
        compared = self._compared(run)
        if compared.flaws:
            return Outcome("differs", str(compared.flaws[0]))
        beyond = limiting.first_beyond(self._limits.judged(compared))
        return Outcome("differs", _words(beyond[0])) if beyond else Outcome("ok")


def _observer(settings: Settings) -> Observer:
    """The part of this command in the program's processes (`within`)."""
    return Observer("accuracy", settings.as_dict())


def _counted(folder: Path) -> set[str]:
    """Every operator that the processes of a run called, if they ended by themselves."""
    return {op for path in folder.glob("counted.*.json") for op in json.loads(path.read_text())}


def _words(one: Judged) -> str:
    return f"{one.place}: {MEASURES[one.measure]} {one.value:.3g}, limit {one.limit:.3g}"


def _pair(path: Path) -> dict[str, float] | None:
    if not path.exists():
        return None
    native_score, routed = json.loads(path.read_text())
    return {"native": native_score, "routed": routed}
