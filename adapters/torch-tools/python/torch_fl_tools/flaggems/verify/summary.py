"""The verdicts in words: what `flagos verify --show` prints, and the counts at the end of a run."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Literal

from torch_fl.flaggems import tables
from torch_fl.flaggems.table_file import STRICT, UNTESTED, Verdict
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems.comparison import ORDER
from torch_fl_tools.flaggems.recorded.result import Result
from torch_fl_tools.flaggems.verify.entries import Verdicts


def show(pattern: str, as_json: bool) -> int:
    known = tables.verdicts()
    shown = {name: entry for name, entry in sorted(known.items()) if matches(name, pattern)}
    if as_json:
        print(json.dumps(shown))
    elif not known:
        where = tables.chip() or "this machine"
        print(f"error: there is no table of {where}: run `flagos verify`", file=sys.stderr)
    else:
        if tables.samples_from() is not None:
            print(f"verified on {tables.chip_of()}")
        print(*lines(shown), sep="\n")
    return 0 if known else 1


def lines(shown: Verdicts) -> list[str]:
    """The lines of the summary: overloads not routed by default, calls not replayed, and the counts."""
    lines = []
    for name, entry in shown.items():
        if entry["verdict"] != STRICT:
            lines.append(f"{name}: {entry['verdict']}: {entry['first']}")
            if "within_all" in entry:
                lines.append(f"{name}: FAILED within all conditions: {entry['within_all']}")
        elif "only" in entry:
            inside = f" ({entry['inside']} cases)" if "inside" in entry else ""
            lines.append(
                f"{name}: STRICT within {within(entry)}{inside}; outside: {entry['first']}"
            )
        if "sizes" in entry:
            ranges = (
                f"{argument} {kinds['elements']}" for argument, kinds in entry["sizes"].items()
            )
            lines.append(f"{name}: elements at which it was verified: {'; '.join(ranges)}")
        if "beyond" in entry:
            lines.append(f"{name}: wrong beyond these sizes: {entry['beyond']}")
        if "declines" in entry:
            cases = f"declines calls, {entry['declined']} cases"
            lines.append(f"{name}: {cases}: {entry['declines']}")
        lines += [f"{name}: not replayed: {reason}" for reason in entry.get("not_replayed", [])]
    partly = sum(bool(e.get("not_replayed")) and e["replayed"] > 0 for e in shown.values())
    wholly = sum(not e.get("not_replayed") and e.get("replayed", 0) > 0 for e in shown.values())
    never = sum(bool(e.get("not_replayed")) and e["replayed"] == 0 for e in shown.values())
    lines += counts(shown)
    lines.append(f"replayed: {wholly} always, {partly} for some arguments, {never} never")
    return lines


def within(entry: Verdict) -> str:
    return ", ".join(entry["only"])


def counts(shown: Mapping[str, Verdict | Result]) -> list[str]:
    """The number of overloads by verdict; also on the database's own samples alone where those are recorded."""

    def by_verdict(kind: Literal["verdict", "plain"]) -> str:
        counts = Counter(str(entry.get(kind)) for entry in shown.values() if kind in entry)
        return ", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in (*ORDER, UNTESTED))

    within = sum(entry["verdict"] == STRICT and "only" in entry for entry in shown.values())
    lines = [
        by_verdict("verdict") + (f" ({within} of the STRICT within conditions)" if within else "")
    ]
    if any("plain" in entry for entry in shown.values()):
        lines.append(f"on the database's own samples alone: {by_verdict('plain')}")
    return lines
