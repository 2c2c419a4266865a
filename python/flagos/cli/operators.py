"""``flagos ops`` and ``flagos explain``."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any

import typer

from flagos.cli.adapters import load_adapters
from flagos.cli.output import Json, fail, print_json, print_table


def ops(
    pattern: Annotated[
        str | None,
        typer.Option("--filter", metavar="PATTERN", help="Part of a name, or a pattern with *."),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(metavar="B", help="Only operators served by this backend or implementation."),
    ] = None,
    lock: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the plan to this lock file."),
    ] = None,
    check_lock: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Fail with the differences from this lock file."),
    ] = None,
    json: Json = False,
) -> None:
    """
    List the operators and which implementation serves each. Imports the installed adapters.

    \b
    Examples:
      $ flagos ops --filter 'aten::add*'
      $ flagos ops --backend flaggems --json
      $ FLAGOS_OP_mm=cpu flagos ops --filter aten::mm
      $ flagos ops --lock plan.lock          # later: flagos ops --check-lock plan.lock
    """
    from flagos import explanation

    adapters = load_adapters()
    entries = explanation.plan()["ops"]
    if check_lock is not None:
        explanation.check_lock(check_lock)
    if lock is not None:
        explanation.lock(lock)
    chosen = {
        name: entry
        for name, entry in entries.items()
        if _matches(name, pattern) and (backend is None or backend in _served_by(entry))
    }
    if json:
        print_json({"operators": list(chosen.values()), "adapters": adapters})
    else:
        for line in _missing(adapters):
            typer.echo(line, err=True)
        if chosen:
            print_table(
                ("operator", "implementation", "backend", "decided by"),
                [
                    (
                        name,
                        entry["winner"] or "blocked",
                        entry["backend"] or "-",
                        entry["decided_by"],
                    )
                    for name, entry in chosen.items()
                ],
            )
        typer.echo(f"{len(chosen)} of {len(entries)} operators")
    if not entries:
        # Nothing could be listed: a script must not take it for an empty but valid answer.
        raise typer.Exit(1)


def explain(
    operator: Annotated[str, typer.Argument(help="For example aten::mm, or add.Tensor.")],
    json: Json = False,
) -> None:
    """
    Explain one operator: which implementation runs, what decided, why the others lost.

    \b
    Examples:
      $ flagos explain aten::mm
      $ FLAGOS_OP_add__Tensor=cpu flagos explain add.Tensor
    """
    from flagos._core import FlagosError
    from flagos.explanation import explain as explain_operator

    adapters = load_adapters()
    try:
        explanation = explain_operator(operator)
    except FlagosError as error:
        missing = _missing(adapters)
        hint = getattr(error, "hint", None)
        fail(str(error), hint="; ".join(missing) if missing else hint, as_json=json)
    if json:
        print_json(explanation.data)
    else:
        typer.echo(str(explanation))


def _matches(name: str, pattern: str | None) -> bool:
    if pattern is None:
        return True
    if any(mark in pattern for mark in "*?["):
        bare = name.partition("::")[2]
        return fnmatchcase(name, pattern) or fnmatchcase(bare, pattern)
    return pattern in name


def _served_by(entry: dict[str, Any]) -> set[str | None]:
    vendors = {candidate["vendor"] for candidate in entry["candidates"] if candidate["chosen"]}
    return {entry["backend"], entry["winner"], *vendors}


def _missing(adapters: dict[str, str | None]) -> list[str]:
    return [
        f"{package} is not loaded, so its operators are not listed: {reason}"
        for package, reason in adapters.items()
        if reason is not None
    ]
