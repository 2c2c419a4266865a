"""The parts of ``flagos <engine> check`` and ``flagos <engine> verify`` that engines share."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flagos.cli.output import CommandError, add_command, print_json

if TYPE_CHECKING:
    from flagos_serving.flaggems import FlagGems
    from flagos_serving.refusals import Problem

_LONGEST = 400


def add_verify(
    commands: Any, run: Callable[[argparse.Namespace], int], engine: str, details: str, example: str
) -> None:
    """Adds the command ``verify`` of an engine; ``example`` is a pattern of its operators."""
    verifying = add_command(
        commands,
        "verify",
        run,
        summary=f"verify FlagGems' kernels for {engine}'s operators on this chip",
        details=details,
    )
    verifying.add_argument(
        "--ops", default="*", metavar="PATTERN", help=f"operators, such as {example!r}"
    )
    verifying.add_argument(
        "--cases", type=int, metavar="N", help="run only the first N cases of each operator"
    )
    verifying.add_argument("--jobs", type=int, default=4, metavar="N", help="processes at a time")
    verifying.add_argument("--out", type=Path, metavar="FILE", help="write the table there")


def require_tools(command: str) -> None:
    """Raises CommandError where the package that makes verdicts is not installed."""
    if find_spec("torch_fl_tools") is None:
        raise CommandError(
            f"{command} needs torch-fl-tools, which is not installed",
            "pip install 'flagos[tools]'",
        )


def verify(options: argparse.Namespace, registered: Callable[[], FlagGems]) -> int:
    """Makes verdicts on FlagGems' kernels. ``registered``: see `flagos_serving.verify.verify`."""
    from flagos_serving import verify as making
    from torch_fl.flaggems import table_file, tables

    flaggems = registered()
    ops = [op for op in flaggems.serves if fnmatchcase(op, options.ops)]
    if not ops:
        raise CommandError(
            f"no operator matches {options.ops!r}: {', '.join(flaggems.serves)}", None
        )
    try:
        found = making.verify(
            registered,
            ops,
            options.cases,
            options.jobs,
            lambda line: print(line, file=sys.stderr),
        )
    except RuntimeError as error:
        raise CommandError(str(error), None) from error
    whole = len(ops) == len(flaggems.serves) and options.cases is None
    into = options.out or (flaggems.verdicts.path() if whole else None)
    table = tables.table(found)
    if into is not None:
        table_file.write(into, table)
        print(f"wrote {into}", file=sys.stderr)
    if options.json:
        print_json(table)
    else:
        counts = Counter(entry["verdict"] for entry in found.values())
        print(", ".join(f"{number} {verdict}" for verdict, number in sorted(counts.items())))
    return int(any(entry["verdict"] == table_file.FAILED for entry in found.values()))


def print_check(
    options: argparse.Namespace,
    problems: list[dict[str, str]],
    serves: Callable[[], dict[str, str]],
) -> int:
    """Prints what ``check`` found, of each option that was given whether it is served.

    Returns 1 if there are problems; without them it says what serves.
    """
    told = judged(options.options, problems)
    if options.json:
        print_json({"problems": problems, "options": told, "serves": {} if problems else serves()})
        return 1 if problems else 0
    for problem in problems:
        print(
            "; ".join(
                filter(None, (f"{problem['option']}: {problem['reason']}", problem["remedy"]))
            )
        )
    served = [option for option, verdict in told.items() if verdict == "served"]
    if problems:
        if served:
            print(f"served: {', '.join(served)}")
        return 1
    print("OK: this configuration works on flagos")
    for name, value in serves().items():
        print(f"  {name:<12} {value}")
    if served:
        print(f"  {'options':<12} {', '.join(served)}: served")
    return 0


def judged(arguments: list[str], problems: list[dict[str, str]]) -> dict[str, str]:
    """``served`` or ``refused`` for each option of a command line.

    ``unknown`` where the engine itself refuses the whole.
    """
    # A number below 0 is a value.
    given = [
        word.partition("=")[0]
        for word in arguments
        if word.startswith("-") and not word[1:2].isdigit()
    ]
    refused = {word for problem in problems for word in problem["option"].split()}
    unknown = any(problem["option"].endswith(" refuses it") for problem in problems)
    rest = "unknown" if unknown else "served"
    return {option: "refused" if option in refused else rest for option in given}


def listed(ours: Iterable[Problem], engine: str, theirs: str) -> list[dict[str, str]]:
    """Problems as data, each once: flagos' own, and what the engine itself refuses with."""
    found = [
        {"option": p.option, "reason": p.reason, "remedy": p.remedy} for p in dict.fromkeys(ours)
    ]
    if theirs:
        found.append({"option": f"{engine} refuses it", "reason": theirs, "remedy": ""})
    return found


def without_kernels(ops: Iterable[str]) -> Iterator[Problem]:
    """Operators that nothing serves, because a route has it so."""
    import flagos
    from flagos_serving.refusals import Problem

    for op in ops:
        explanation = flagos.explain(op)
        if explanation.data["winner"] is None:
            yield Problem(
                op,
                f"no implementation of it is usable, by {explanation.data['decided_by']}",
                f"`flagos explain {op}` says why of each; change the route",
            )


def message(error: Exception) -> str:
    """The words of an error, without what pydantic puts around them."""
    errors = getattr(error, "errors", None)
    if callable(errors):
        text = "; ".join(str(one["msg"]).removeprefix("Value error, ") for one in errors())
    else:
        text = f"{type(error).__name__}: {error}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} ..."  # some list every model


def winner(op: str) -> str:
    """The implementation of an operator that serves, as ``check`` shows it."""
    import flagos

    return f"{op} -> {flagos.explain(op).data['winner']}"
