"""Collects the outcomes of the cases of an overload into its verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torch_fl.flaggems import envelope
from torch_fl.flaggems.table_file import FAILED, STRICT, UNTESTED, Verdict
from torch_fl_tools.flaggems import cases
from torch_fl_tools.flaggems.comparison import worse
from torch_fl_tools.flaggems.running import Case, Loss


class Checked(Verdict, total=False):
    """The result of `check`: an entry, and facts for the next process."""

    loss: Loss  # the case in which the device was lost
    short: bool  # whether a case found no memory


def untested(why: str) -> Checked:
    """The entry of an overload of which no case was compared."""
    return {"verdict": UNTESTED, "plain": UNTESTED, "cases": 0, "first": why}


class Tally:
    """Collects the outcomes of the cases of an overload. `found` is the result that `check` returns."""

    def __init__(self, conditions: frozenset[str], groups: int, losses: Sequence[Loss]) -> None:
        self.found: Checked = {
            "verdict": UNTESTED,
            "plain": UNTESTED,
            "cases": 0,
            "replayed": 0,
            "first": None,
        }
        self.right: list[Case] = []
        self.wrong: list[Case] = []
        self.waiting = set(range(groups))  # groups without a verdict yet
        self._groups = groups
        self._conditions = conditions
        self._declined: Counter[int] = Counter()  # declined cases by group
        self._skipped = ""
        self._inherent: Case | None = None  # a case that FAILED within all conditions
        self._complete = True
        self._left: set[int] = set()  # groups with cases that were left out
        self._uncompared = 0  # groups among them of which no case was compared
        self._short: set[int] = set()  # groups with cases that found no memory
        self._starved = 0  # groups among them of which no case was compared
        self._to_come = {loss.case for loss in losses if not loss.native}
        for loss in losses:
            if not loss.native:  # counts even if there is no time for the case
                self.found |= {"verdict": FAILED, "first": f"{loss.case}: {loss.why}"}
                if cases.plain(loss.case):
                    self.found["plain"] = FAILED

    def leave_out(self, group: int, case: Case) -> None:
        """Count a case that the native kernel does not survive."""
        self._left.add(group)
        self.found.setdefault("left_out", []).append(case.name)

    def ended(self, group: int) -> None:
        """Note that a group has no other case."""
        self._uncompared += group in self._left & self.waiting
        self._starved += group in self._short & self.waiting
        self.waiting.discard(group)

    def add(self, group: int, case: Case) -> None:
        """Count a case that has run, or whose outcome is known."""
        if case.short:
            self._short.add(group)
            self.found["short"] = True
            return
        self._to_come.discard(case.name)
        if case.verdict is None:
            self._skipped = self._skipped or f"{case.name}: {case.why}"
            self._declined[group] += 1
            if self._declined[group] == cases.FIRST:
                self.waiting.discard(group)
        else:
            self.waiting.discard(group)
            self._compared(case, case.verdict)
        if case.lost:
            broken = case.broken(self._conditions)
            self.found["loss"] = Loss(case.name, case.verdict is None, case.why, broken)
            self._cut_short()

    def _compared(self, case: Case, verdict: str) -> None:
        self.found["cases"] += 1
        if worse(verdict, self.found["verdict"]):
            self.found["verdict"] = verdict
            if verdict != STRICT:
                self.found["first"] = f"{case.name}: {case.why}"
        if cases.plain(case.name) and worse(verdict, self.found["plain"]):
            self.found["plain"] = verdict
        if verdict != STRICT:
            self.wrong.append(case)
        elif case.calls:
            case.sample = None  # frees its memory
            self.right.append(case)
        if verdict == FAILED and case.within(self._conditions):
            self._inherent = self._inherent or case

    def no_time(self) -> None:
        """Note that not all cases were reached."""
        left = self.found["not_reached"] = len(self.waiting)
        if self._to_come:
            self._complete = False
        if left:
            self._cut_short()
            if self.found["verdict"] in (STRICT, UNTESTED):
                self.found["verdict"] = UNTESTED
                self.found["first"] = (
                    f"there was no time for {left} of {self._groups} forms and types"
                )

    def _cut_short(self) -> None:
        self._complete = False
        if self.found["plain"] != FAILED:
            self.found["plain"] = UNTESTED

    @property
    def settled(self) -> bool:
        """Whether no further case can change the verdict."""
        return self._inherent is not None and self.found["plain"] == FAILED

    @property
    def can_have_conditions(self) -> bool:
        """Whether conditions may exist within which every case is right."""
        complete = self._complete and not self._starved
        return complete and self._inherent is None and bool(self.wrong and self.right)

    def strict_within(self, only: frozenset[str]) -> None:
        """Note the conditions within which every case is right."""
        inside = sum(case.within(only) for case in self.right)
        self.found |= {"verdict": STRICT, "only": envelope.ordered(only)}
        self.found |= {"inside": inside, "outside": len(self.wrong)}

    def result(self) -> Checked:
        """The result of `check`."""
        found = self.found
        if self._uncompared and found["verdict"] == STRICT:
            ends = "the native kernel ends the process in every case of"
            found |= {"verdict": UNTESTED, "plain": UNTESTED}
            found["first"] = f"{ends} {self._uncompared} forms and types"
        if self._starved and found["verdict"] in (STRICT, UNTESTED):
            found |= {"verdict": UNTESTED, "plain": UNTESTED, "not_reached": self._starved}
            found["first"] = (
                f"there was no memory for {self._starved} of {self._groups} forms and types"
            )
        if self._inherent is not None:
            inherent = f"{self._inherent.name}: {self._inherent.why}"
            if found["first"] != inherent:
                found["within_all"] = inherent
        if not found["cases"] and found["first"] is None:
            why = f"; {self._skipped}" if self._skipped else ""
            found["first"] = f"no case reached it{why}"
        return found
