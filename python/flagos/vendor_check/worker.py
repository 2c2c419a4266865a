"""A part of the checklist, in a process of its own: the code of a vendor may crash, hang, or end its process.

Run as ``python -m flagos.vendor_check.worker PART TARGET [CHECK]``, also under a debugger. A target is the path of a
library or a manifest, which has a slash in it, or the name of a vendor that is built in.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable

from flagos import FlagosError, _core
from flagos.loading import load_adapters
from flagos.processes.reports import report


def take(target: str) -> None:
    """Takes the library and opens the vendor, and reports every step that has passed."""
    _core.take_vendor(target, lambda step, detail: report(step, detail=detail))
    report("declared", names=dict(_core.vendor_declarations(target)))


def declarations(target: str) -> None:
    """Tries out what the library takes for granted of the one beneath it, one after the other."""
    for name, grade in _core.vendor_declarations(target):
        # Told before, because a wrong declaration may crash the process.
        report(f"trying {name}", grade=grade)
        shown, right = _core.try_declaration(target, name)
        report(f"tried {name}", shown=shown, right=right)


def check(target: str, name: str) -> None:
    """Runs one check of the conformance suite."""
    report("finding", text=_core.check_vendor(target, name))


def operators(target: str) -> None:
    """Asks the library for a kernel of every operator that the installed adapters know."""
    missing = {name: reason for name, reason in load_adapters().items() if reason is not None}
    known = _core.ops(None)
    # Before the library is loaded: what fails until here is not the vendor's.
    report("known", count=len(known), missing=missing)
    if known:
        report("operators", found=_core.find_kernels(target, known))


PARTS: dict[str, Callable[..., None]] = {
    "take": take,
    "declarations": declarations,
    "check": check,
    "operators": operators,
}


def main(part: str, *arguments: str) -> None:
    """Runs a part. An error of flagos is reported as the stage ``error``."""
    # A crash is an answer here, and nobody reads the core.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        PARTS[part](*arguments)
    except FlagosError as error:
        report("error", message=str(error), hint=error.hint)
    report("end")


if __name__ == "__main__":
    main(*sys.argv[1:])
