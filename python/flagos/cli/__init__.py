"""The ``flagos`` command.

Each command is a file here. Nothing imports torch except the commands that say so, and those import
it late, so that every other one answers at once and works when torch is broken.
"""

from __future__ import annotations

import sys

import typer

from flagos.cli import demo, devices, doctor, environment, operators
from flagos.cli.output import fail

app = typer.Typer(
    name="flagos",
    help="One device for PyTorch and more: look at it, at its routes, and at what is wrong.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,  # plain text: examples keep their lines, pipes get no escape codes
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("devices")(devices.devices)
app.command("ops")(operators.ops)
app.command("explain")(operators.explain)
app.command("doctor")(doctor.doctor)
app.command("env")(environment.env)
app.command("demo", context_settings=demo.PASS_EVERYTHING, add_help_option=False)(demo.demo)


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from importlib.metadata import version as installed_version

        typer.echo(installed_version("flagos"))
        raise typer.Exit


def main() -> None:
    """Entry point of the console script."""
    try:
        app()
    except ImportError as error:
        # Only `flagos._core` is imported eagerly by commands; everything else is optional.
        fail(
            f"{error}",
            hint="run `flagos doctor`, or reinstall: pip install --force-reinstall flagos",
            as_json="--json" in sys.argv,
        )
    except Exception as error:
        if type(error).__module__.split(".")[0] != "flagos":
            raise
        fail(str(error), hint=None, as_json="--json" in sys.argv)
