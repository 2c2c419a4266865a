"""Checks whether this commit can be released, tries its wheels, writes a version, and prints the notes of a release."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.release import changelogs, environments, versions


def missing(tag: str | None) -> Iterator[str]:
    """Everything that stands in the way of a release, each with its remedy. ``tag`` is the one that asks for it."""
    status = subprocess.run(
        ["git", "status", "--porcelain"],
        cwd=versions.ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    if status.stdout:
        yield f"the tree is not clean: commit or remove\n{status.stdout.rstrip()}"
    version = versions.version()
    if tag is not None and tag != f"v{version}":
        yield f"the tag {tag} is not v{version}: tag the commit that has its version"
    for copy in versions.copies():
        if copy.version != version:
            yield (
                f"{copy.file}:{copy.line} has {copy.version}, Cargo.toml {version}: "
                f"make release-version VERSION={version}"
            )
    if changelogs.released(version) is None:
        yield f"{changelogs.CHANGELOG} has no entry `## {version}, <date>`: date the one of what is next"
    for header in changelogs.CONSTANTS:
        declared, entry = changelogs.header_version(header), changelogs.newest_entry(header)
        if declared != entry:
            yield f"{header} is of version {declared}, {changelogs.HEADERS} ends with {entry}: add what it promises"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.release", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    one = commands.add_parser("check", help="tell what stands in the way of a release")
    one.add_argument("--tag", help="the tag that asks for the release: v and the version")
    commands.add_parser("notes", help="print the changelog's entry for the version")
    one = commands.add_parser(
        "try", help="run the demo from wheels alone, in a new environment a torch"
    )
    one.add_argument("torches", nargs="+", metavar="TORCH", help="such as 2.11")
    one.add_argument(
        "--wheels", type=Path, default=Path("dist/portable"), help="(default: %(default)s)"
    )
    one.add_argument("--steps", type=int, default=20, help="training steps (default: %(default)s)")
    one = commands.add_parser("write", help="write a version wherever a file has it")
    one.add_argument("version", metavar="VERSION", help="such as 0.2.0")
    options = parser.parse_args()
    try:
        if options.command == "write":
            versions.write(options.version)
        elif options.command == "try":
            wrong = environments.failures(options.wheels.resolve(), options.torches, options.steps)
            print("\n".join(wrong), file=sys.stderr)
            return bool(wrong)
        elif options.command == "notes":
            print(changelogs.entry(versions.version()))
        else:
            found = list(missing(options.tag))
            print("\n".join(found) or f"{versions.version()} can be released")
            return bool(found)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
