"""``flagos trainers``: checks DeepSpeed, Megatron-LM-FL and configurations, and lists places that say `cuda`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

from flagos.cli.output import CommandError, add_command, print_json
from flagos_trainers import releases

_CHECK = """
Checks the trainers of this interpreter: their releases, the tools that DeepSpeed compiles its host code with, and the
places of Megatron-LM-FL's and TransformerEngine's sources that say `cuda`. With --deepspeed, lists the options of a
configuration that flagos does not serve. Exits with 1 if a trainer that is there cannot train, or an option is not
served.

examples:
  $ flagos trainers check
  $ flagos trainers check --deepspeed zero3.json
  zero_optimization.zero_quantized_weights: ZeRO++'s quantizer is a CUDA kernel; leave it out, or set false
"""

_PLACES = """
Lists the modules of a checkout of Megatron-LM-FL or TransformerEngine-FL that are read as if they said flagos, and how
many places of each kind they have.

examples:
  $ flagos trainers places Megatron-LM-FL
"""


def parser() -> argparse.ArgumentParser:
    """The command line, with the commands below it."""
    result = argparse.ArgumentParser(
        prog="flagos trainers",
        description="Checks DeepSpeed and Megatron-LM-FL on flagos.",
        epilog="`flagos trainers check --help` shows examples.",
    )
    commands = result.add_subparsers(metavar="<command>", required=True)
    checking = add_command(
        commands, "check", check, summary="check the trainers of this interpreter", details=_CHECK
    )
    checking.add_argument("--deepspeed", type=Path, metavar="FILE", help="a configuration")
    listing = add_command(
        commands,
        "places",
        list_places,
        summary="list the places of a checkout that say cuda",
        details=_PLACES,
    )
    listing.add_argument(
        "checkout",
        type=Path,
        help="the folder that has the folder `megatron`, or `transformer_engine`",
    )
    return result


def run(arguments: list[str]) -> int:
    """Runs one command line. Returns 0 for success, 1 for a failure."""
    options = parser().parse_args(arguments)
    return int(options.run(options))


def check(options: argparse.Namespace) -> int:
    """Checks the trainers, and a configuration."""
    found = {
        "deepspeed": _deepspeed(),
        "megatron": _retargeted("megatron", "Megatron Core"),
        "transformer_engine": _retargeted("transformer_engine", "TransformerEngine"),
    }
    problems = []
    if options.deepspeed is not None:
        from flagos_trainers.deepspeed import rules

        problems = [str(problem) for problem in rules.problems(_configuration(options.deepspeed))]
    failed = bool(problems) or any(trainer["problems"] for trainer in found.values())
    if options.json:
        print_json({**found, "configuration": problems})
        return int(failed)
    for name, trainer in found.items():
        print(f"{name:<18} {trainer['version'] or 'not there'}")
        for kind in ("problems", "notes"):
            for text in trainer[kind]:
                print(f"  {text}")
    for problem in problems:
        print(problem)
    if options.deepspeed is not None and not problems:
        print(f"OK: flagos serves the options of {options.deepspeed}")
    return int(failed)


def list_places(options: argparse.Namespace) -> int:
    """Prints the places of a checkout."""
    from flagos_trainers.megatron import retarget

    packages = [options.checkout / name for name in releases.RETARGETED]
    package = next((path for path in packages if retarget.version(path) is not None), None)
    if package is None:
        raise CommandError(
            f"{options.checkout} is no checkout of Megatron-LM-FL or TransformerEngine-FL: it has neither "
            "megatron/core/package_info.py nor a transformer_engine with a version",
            "name the folder that has the folder `megatron` or `transformer_engine`",
        )
    found = retarget.scan(package)
    if options.json:
        print_json({"version": retarget.version(package), "places": found})
        return 0
    for module, kinds in found.items():
        print(module)
        for kind, count in kinds.items():
            print(f"  {count:>3} {kind}")
    return 0


def _configuration(file: Path) -> dict[str, Any]:
    try:
        configuration = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"{file}: {error.strerror}", "name a file of JSON") from error
    except ValueError as error:
        raise CommandError(
            f"{file} is no JSON: {error}", "name a DeepSpeed configuration"
        ) from error
    if not isinstance(configuration, dict):
        raise CommandError(f"{file} has no object of JSON", "name a DeepSpeed configuration")
    return configuration


def _has_header(compiler: str, header: str) -> bool:
    command = [compiler, "-x", "c++", "-fsyntax-only", "-include", header, os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _deepspeed() -> dict[str, Any]:
    try:
        version = metadata.version("deepspeed")
    except metadata.PackageNotFoundError:
        return {"version": None, "problems": [], "notes": []}
    wrong = releases.wrong("DeepSpeed", version, releases.DEEPSPEED)
    compiler = os.environ.get("CXX", "g++")
    notes = [
        f"{tool} is not on PATH: DeepSpeed cannot compile what it offloads with"
        for tool in ("ninja", compiler)
        if shutil.which(tool) is None
    ]
    if shutil.which(compiler) is not None and not _has_header(compiler, "libaio.h"):
        notes.append(
            "libaio.h is missing: no offload to NVMe (on Debian: apt-get install libaio-dev)"
        )
    return {"version": version, "problems": [wrong] if wrong else [], "notes": notes}


def _retargeted(name: str, title: str) -> dict[str, Any]:
    from flagos_trainers.megatron import places, retarget

    package = retarget.package(name)
    if package is None:
        return {"version": None, "problems": [], "notes": []}
    version = str(retarget.version(package))
    wrong = releases.wrong(title, version, releases.RETARGETED[name])
    if wrong:
        return {"version": version, "problems": [wrong], "notes": []}
    known, found = places.of(name, version) or {}, retarget.scan(package)
    notes = [
        f"{module} has places that say cuda and were not looked at: {found[module]} instead of "
        f"{known.get(module, {})}"
        for module in sorted(found)
        if known.get(module) != found[module]
    ]
    return {"version": version, "problems": [], "notes": notes}
