"""``flagos doctor``."""

from __future__ import annotations

from typing import Annotated

import typer

from flagos.cli.output import Json, print_json


def doctor(
    timeout: Annotated[
        float, typer.Option(metavar="SECONDS", help="For each check that runs in a process.")
    ] = 120.0,
    canaries: Annotated[
        bool, typer.Option(help="Run small computations on the device.")
    ] = True,
    json: Json = False,
) -> None:
    """
    Check the installation. Every problem comes with its fix. Status 1 if anything fails.

    Whatever may crash (torch, the extension, the device) runs in a process of its own, so this
    works when they are broken.

    \b
    Examples:
      $ flagos doctor
      $ flagos doctor --json --no-canaries
    """
    from flagos.doctor import Status, diagnose, summary, worst

    checks = []
    for check in diagnose(timeout=timeout, canaries=canaries):
        checks.append(check)
        if not json:
            color = {Status.OK: "green", Status.WARN: "yellow", Status.FAIL: "red"}[check.status]
            label = typer.style(f"{check.status.value.upper():<4}", fg=color)
            typer.echo(f"{label}  {check.name}: {check.detail}")
            if check.fix:
                typer.echo(f"      fix: {check.fix}")
    status = worst(checks)
    if json:
        print_json({"status": status.value, "checks": [check.as_dict() for check in checks]})
    else:
        typer.echo("")
        typer.echo(summary(checks))
    if status is Status.FAIL:
        raise typer.Exit(1)
