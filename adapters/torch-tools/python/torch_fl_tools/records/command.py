"""Writes the distinct operator calls of a program to a small file: shapes, strides and types, never the data.

    flagos record [-o my.rec] [--meta] -- python train.py
    flagos record --show my.rec [--ops PATTERNS] [--json]

Examples:
  flagos record -o train.rec -- python train.py --steps 2
  flagos record --meta -o big.rec -- python big.py     # a model of any size, without memory or computation
  flagos verify --record train.rec                     # are FlagGems' kernels right for these calls?

The program runs as it does without the command, on any device, but more slowly; two or three steps are enough. The
record covers all of its processes (torchrun's ranks, forked workers). SIGTERM and SIGHUP are forwarded to the program,
and Ctrl-C ends only the program: the record is written in any case. It lacks calls from threads other than a process's
first one (it has those of backward passes), and kernels that torch.compile generates. A file whose name ends with .gz
is compressed.

With --meta tensors have shapes and types but no memory (torch's FakeTensorMode), also with `device="flagos"`. A value
that the program reads is 1, and an operator whose output shape depends on values ends the program. In Python:

    with torch.flagos.record("my.rec", meta=True):
        train()
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from flagos.cli import command_line, output_files
from flagos.cli.output import CommandError
from flagos.processes import foreground
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.records import facts, files, program
from torch_fl_tools.records.facts import BrokenRecord

_DEFAULT = Path("flagos.rec")


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos record`. Returns the status of the program."""
    own, program_behind = command_line.split(sys.argv[1:] if arguments is None else arguments)
    command = program_behind or []
    parser = argparse.ArgumentParser(
        prog="flagos record",
        usage="flagos record [-o FILE] [--meta] [--json] -- COMMAND...\n"
        "       flagos record --show FILE [--ops PATTERNS] [--json]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help=f"the record (default: {_DEFAULT})"
    )
    parser.add_argument("--meta", action="store_true", help="record without memory and computation")
    parser.add_argument("--show", type=Path, metavar="FILE", help="print a record; run nothing")
    parser.add_argument("--ops", metavar="PATTERNS", help="shell patterns of overloads, for --show")
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON; the program prints to standard error",
    )
    options = parser.parse_args(own)
    _require_that_all_serve(options, command)
    if options.show is not None:
        return _show(options.show, options.ops or "*", options.json)
    if not command:
        parser.error("name the program after `--`: flagos record -- python train.py")
    return _record(command, options.out or _DEFAULT, options.meta, options.json)


def _require_that_all_serve(options: argparse.Namespace, command: list[str]) -> None:
    """Raise CommandError for an option that would be ignored."""
    shows = options.show is not None
    recording = {
        "-o": options.out is not None,
        "--meta": options.meta,
        "a program after `--`": bool(command),
    }
    if shows and (others := [name for name, given in recording.items() if given]):
        raise CommandError(
            f"--show prints a record and runs nothing, and {' and '.join(others)} is for recording",
            "leave out --show, or all of the others",
        )
    if not shows and options.ops is not None:
        raise CommandError(
            "--ops selects what --show prints, and a program is recorded with all of its operators",
            "leave out --ops, and give it to flagos record --show FILE afterwards",
        )


def _record(command: list[str], out: Path, meta: bool, as_json: bool) -> int:
    output_files.require_writable(out, _DEFAULT.name)
    with tempfile.TemporaryDirectory(prefix="flagos-record-") as folder:
        environment = {**os.environ, program.FOLDER: folder, program.META: str(int(meta))}
        try:
            status = foreground.run(
                command, environment=environment, stdout=sys.stderr if as_json else None
            )
        except OSError as error:
            print(f"error: {command[0]} did not start: {error}", file=sys.stderr)
            return 127
        calls, left_out, processes = [], {}, 0
        for path in sorted(Path(folder).glob("*.rec")):
            processes += 1
            found, head = _of_a_process(path)
            calls += found
            left_out.update(head.get("left_out", {}))
    if not calls:
        why = (
            "the program imported no torch in whose environment flagos is installed"
            if not processes
            else "the program called no operator of torch"
        )
        message = f"nothing was recorded: {why}; {out} is not written"
        if as_json:
            print(json.dumps({"error": message, "hint": None, "status": status}))
        else:
            print(f"error: {message}", file=sys.stderr)
        return status or 1
    merged = files.merged(calls)
    try:
        files.write(out, merged, left_out=left_out)
    except OSError as error:
        raise output_files.cannot_be_written(out, error) from error
    if as_json:
        summary = {"file": str(out), "status": status, "calls": len(merged), "left_out": left_out}
        print(json.dumps(summary))
    else:
        operators = len({call.op for call in merged})
        print(
            f"wrote {out}: {len(merged)} distinct calls of {operators} operators", file=sys.stderr
        )
        for name, why in left_out.items():
            print(f"  not described: {name}: {why}", file=sys.stderr)
    return status if status >= 0 else 128 - status


def _of_a_process(path: Path) -> tuple[list[facts.Call], dict[str, dict[str, str]]]:
    """Reads the calls of a process; for one that was killed while it wrote, all but the last line."""
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    head = json.loads(whole.partition("\n")[0]) if whole else {}
    return (files.read(path) if whole else []), head


def _show(path: Path, pattern: str, as_json: bool) -> int:
    try:
        calls = [call for call in files.read(path) if matches(call.overload, pattern)]
    except (OSError, BrokenRecord) as error:
        raise CommandError(str(error), "name a file that `flagos record` wrote") from error
    if as_json:
        print(json.dumps([facts.to_json(call) for call in calls]))
        return 0
    for call in calls:
        around = f"  (autocast {call.autocast})" if call.autocast else ""
        print(f"{call.count:7d} x {call}{around}")
    counts = Counter(call.op for call in calls)
    print(f"{len(calls)} distinct calls of {len(counts)} operators")
    return 0
