"""The search over the plan: baselines, the operators that are called, and delta debugging over them."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from flagos.cli.output import CommandError
from torch_fl_tools.bisect import process
from torch_fl_tools.bisect.findings import Cause, Outcome, Result, Suspect
from torch_fl_tools.bisect.search import Search
from torch_fl_tools.bisect.state import Run, State
from torch_fl_tools.bisect.trial import Observer, Trial, Watch

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """The criteria of a failure beside a status other than 0, a signal and a timeout."""

    compare: str | None = None  # native, cpu or cuda
    nan: bool = False
    rtol: float | None = None
    atol: float | None = None
    timeout: float | None = None
    repeat: int = 1
    random: bool = False
    exclude: tuple[str, ...] = ()
    seed: int = 0

    @property
    def reference(self) -> str:
        """Whose routes operators have that do not keep theirs."""
        return self.compare or "native"


@dataclass(frozen=True)
class Routed:
    """An operator of a process's plan whose route differs from the reference's."""

    impl: str | None
    backend: str | None
    python: bool  # whether Python serves it
    random: bool


@dataclass(frozen=True)
class Program:
    """The file of the program and its arguments, as its first process tells them."""

    main: str | None = None
    argv: list[str] = field(default_factory=list)


class Over(Exception):
    """The search ends here."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class Session:
    """One search."""

    def __init__(
        self, command: list[str], check: Check, state: State, tell: Tell, max_runs: int
    ) -> None:
        self.command, self.check, self.state, self._tell = command, check, state, tell
        self._max_runs = max_runs
        self.routed: dict[str, Routed] = {}
        self.program: Program | None = None
        #: Whether runs are compared by what they yield, even if nothing is marked.
        self.by_values = False
        #: The tool that observes the processes of each run (`trial`), for `judge`, which tells the outcome of a run
        #: that ended well.
        self.observer: Observer | None = None
        self.judge: Callable[[Run], Outcome] | None = None
        self._used: set[str] = set()  # the runs of the search
        self._seconds: list[float] = []
        self._search: Search | None = None
        self._expected: Path | None = None

    # ---- single runs

    def trial(
        self,
        key: str,
        keep: frozenset[str] | None,
        *,
        watch: Watch | None = None,
        environment: dict[str, str] | None = None,
        stop: Callable[[Path], bool] = lambda _: False,
        expected: bool = True,
        patience: float = 1.0,
        observer: Observer | None = None,
    ) -> Run:
        """The run called `key`, from the state if it was made before. It may take `patience` times the time-out."""
        known = self.state.known(key)
        search = watch is None
        if known is not None:
            if search and key not in self._used:
                self._used.add(key)
                self._seconds.append(known.seconds)
                self._line(key, known, again=True)
            return known
        if search and len(self._used) >= self._max_runs:
            raise Over(
                "too many runs",
                f"no answer in {self._max_runs} runs: with more of --max-runs and --state {self.state.folder} the "
                "same command continues from here",
            )
        folder = self.state.new_folder()
        compare = self._expected if expected else None
        trial = Trial(
            folder=folder,
            keep=keep,
            reference=self.check.reference,
            compare=compare,
            nan=self.check.nan,
            rtol=self.check.rtol,
            atol=self.check.atol,
            seed=self.check.seed,
            watch=watch,
            observer=observer or self.observer,
        )
        began = time.monotonic()
        outcome = process.run(
            self.command,
            trial,
            environment=environment or {},
            timeout=None if self.check.timeout is None else patience * self.check.timeout,
            expected=compare,
            stop=lambda: stop(folder),
        )
        run = Run(key, folder, outcome, round(time.monotonic() - began, 2))
        if self.judge is not None and not outcome.fails and any(folder.glob("plan.*.json")):
            run = replace(run, outcome=self.judge(run))
        self.state.add(run)
        if search:
            self._used.add(key)
        self._seconds.append(run.seconds)
        self._require_agent(folder, outcome)
        self._line(key, run, again=False)
        return run

    def _require_agent(self, folder: Path, outcome: Outcome) -> None:
        if any(folder.glob("plan.*.json")):
            return
        self.state.runs.pop()  # a run that says nothing
        error = process.last_line(folder / "stderr")
        raise CommandError(
            f"the program ended ({outcome.detail or 'status 0'}) and never loaded flagos"
            + (f": {error}" if error else ""),
            f"it has to use the device flagos, in an environment that has torch-fl; its output is in {folder}",
        )

    def _line(self, key: str, run: Run, again: bool) -> None:
        number = self.state.runs.index(run) + 1
        before = " (before)" if again else f", {run.seconds:.0f} s"
        left = "" if self._search is None else self._rest(self._search.left)
        self._tell(f"run {number}: {key}: {run.outcome}{before}{left}")

    def _rest(self, runs: int) -> str:
        if runs == 0:
            return ""
        mean = sum(self._seconds) / len(self._seconds)
        return f"; about {runs} more, {_duration(runs * mean)}"

    def _fails(self, keep: frozenset[str]) -> bool:
        assert self._search is not None
        return self._set(keep).fails

    def _set(self, keep: frozenset[str]) -> Outcome:
        """The outcome with these operators as routed, and all others on the reference."""
        names = sorted(op.removeprefix("aten::") for op in keep)
        which = ", ".join(names)
        if len(names) > 3:  # their names are in the run's trial.json
            which = hashlib.sha256(which.encode()).hexdigest()[:8]
        return self._any(f"{len(keep)} routed ({which})", keep)[0]

    def _any(
        self, key: str, keep: frozenset[str] | None, expected: bool = True
    ) -> tuple[Outcome, Path]:
        """The outcome of a run, or of the first that fails of as many as `--repeat` says; and the run's folder."""
        for attempt in range(self.check.repeat):
            name = key if attempt == 0 else f"{key}, time {attempt + 1}"
            run = self.trial(name, keep, expected=expected)
            if run.outcome.fails:
                break
        return run.outcome, run.folder

    # ---- the search

    def run(self) -> Result:
        """Search. Raises CommandError for a program that cannot be searched."""
        try:
            candidates = self._candidates()
            causes = self._causes(candidates)
        except Over as over:
            return Result(over.verdict, str(over), operators=len(self.routed), runs=len(self._used))
        message = f"{len(causes)} of {len(candidates)} operators" if len(causes) > 1 else ""
        return Result("found", message, causes, len(candidates), len(self._used))

    def _candidates(self) -> list[str]:
        """The operators to search among, after the runs that show that there is something to find."""
        check = self.check
        who = "native" if check.reference == "native" else check.reference
        outcome, first = self._any(f"all routed to {who}", frozenset(), expected=False)
        self.see(first)
        if outcome.fails:
            raise Over(
                "native fails",
                f"the program fails with every operator routed to {who}, too ({outcome.detail}): no route is to blame",
            )
        self._require_reference(first)
        if check.compare is not None or check.nan:
            self._require_marks(first)
        if check.compare is not None:
            self._expected = first
            second, _ = self._any(f"all routed to {who}, again", frozenset())
            if second.fails:
                raise Over(
                    "not reproducible",
                    f"two runs with every operator routed to {who} differ ({second.detail}): fix what is random, or "
                    "tolerate it with --rtol and --atol",
                )
        failure, configured = self._any("routed as configured", None)
        self.see(configured)
        if not failure.fails:
            raise Over("passes", "the program passes with the routes that are configured")
        called = self.called(configured)
        left_out = self.left_out(called)
        candidates = [op for op in called if op not in left_out]
        if not candidates:
            what = f"{_names(left_out)} alone" if left_out else "no operator"
            raise Over(
                "not searched",
                f"the program fails, and {what} was called by another route than {who}: nothing is left to search",
            )
        self._tell(
            f"{len(candidates)} operators were called by other routes than {who}"
            + (f"; {_names(left_out)} stay on {who}" if left_out else "")
        )
        if left_out or check.compare is None:
            candidates = self._confirmed(candidates, left_out, who, failure)
        return candidates

    def _confirmed(
        self, candidates: list[str], left_out: list[str], who: str, failure: Outcome
    ) -> list[str]:
        """The candidates, if the program fails with these alone; that is also its second failure."""
        if self._set(frozenset(candidates)).fails:
            return candidates
        if left_out:
            raise Over(
                "not searched",
                f"the program passes once {_names(left_out)} stay on {who}; --random searches operators that draw "
                "random numbers, too",
            )
        again, _ = self._any("routed as configured, again", None)
        every = sorted(self.routed)
        if again.fails and len(every) > len(candidates) and self._set(frozenset(every)).fails:
            self._tell(
                f"other operators are needed for it: all {len(every)} that are routed are searched"
            )
            return every
        raise Over(
            "not reproducible",
            f"with the same routes the program fails once ({failure.detail}) and passes once; --repeat 5 makes five "
            "runs of each set, of which one that fails counts",
        )

    def _causes(self, candidates: list[str]) -> list[Cause]:
        search = self._search = Search(candidates, self._fails)
        search.know(frozenset(candidates), True)
        found = search.causes()
        self._search = None
        causes = []
        for operators in found:
            outcome = self._set(frozenset(operators))
            causes.append(Cause([self._suspect(op) for op in operators], outcome))
        return causes

    def _suspect(self, op: str) -> Suspect:
        routed = self.routed.get(op)
        return (
            Suspect(op, None, None) if routed is None else Suspect(op, routed.impl, routed.backend)
        )

    # ---- what the program's processes wrote

    def see(self, folder: Path) -> None:
        """Take the routes that the processes of a run wrote."""
        for path in sorted(folder.glob("plan.*.json")):
            plan = json.loads(path.read_text())
            self.routed |= {op: Routed(**one) for op, one in plan["routed"].items()}
            if plan["main"] is not None or self.program is None:
                self.program = Program(plan["main"], plan["argv"] or [])

    def _require_reference(self, folder: Path) -> None:
        plan = json.loads(next(iter(sorted(folder.glob("plan.*.json")))).read_text())
        if not plan["has_reference"]:
            raise CommandError(
                f"no operator has an implementation of backend {self.check.reference!r} here: the vendor is "
                f"{plan['vendor']!r}",
                "compare with native, or cpu",
            )

    def _require_marks(self, folder: Path) -> None:
        if not any(folder.glob("marks.*.jsonl")):
            option = "--nan" if self.check.compare is None else f"--compare {self.check.compare}"
            raise CommandError(
                f"{option} looks at what the program marks, and it marked nothing",
                'mark a place: torch.flagos.mark("loss", loss)',
            )

    def called(self, folder: Path) -> list[str]:
        """The operators of a run that were called by another route, in the order of their first calls."""
        called: dict[str, None] = {}
        for path in sorted(folder.glob("called.*")):
            called |= dict.fromkeys(path.read_text().split())
        counted: set[str] = set()
        crashed = False
        for path in sorted(folder.glob("plan.*.json")):
            counts = folder / path.name.replace("plan.", "counted.")
            if counts.exists():
                counted |= set(json.loads(counts.read_text()))
            else:
                crashed = True
        for op, routed in self.routed.items():
            if not routed.python and (crashed or op in counted):
                called[op] = None
        return [op for op in called if op in self.routed]

    def left_out(self, called: list[str]) -> list[str]:
        """Those of the operators that are not searched."""

        def stays(op: str) -> bool:
            plain = op.removeprefix("aten::")
            by_values = self.check.compare is not None or self.by_values
            drawn = by_values and not self.check.random and self.routed[op].random
            return drawn or any(
                fnmatchcase(name, pattern) for pattern in self.check.exclude for name in (op, plain)
            )

        return [op for op in called if stays(op)]


def _names(ops: list[str]) -> str:
    plain = [op.removeprefix("aten::") for op in ops]
    return ", ".join(plain[:4]) + (f" and {len(plain) - 4} others" if len(plain) > 4 else "")


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
