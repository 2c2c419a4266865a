"""Lists each fact of the seam that a release of vLLM changes: ``python -m adapters.vllm.tests.facts 0.33.0``.

A release's sources come by pip, without its dependencies and without a build; ``--sources`` takes a folder that has
them. They are compared with the facts of the nearest release that flagos serves, which are kept beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from itertools import groupby
from pathlib import Path

from adapters.vllm.tests.facts import reading
from vllm_flagos import releases

KEPT = Path(__file__).parent
KINDS = (
    ("pin", "what it is built for"),
    ("vllm.", "names that the adapter imports or replaces"),
    ("method", "methods of vLLM that the adapter has of its own"),
    ("platform", "methods of a platform"),
    ("plugins", "plugins"),
    ("asks", "places that ask for platforms of others"),
    ("config", "fields of the configuration that rules read"),
    ("choice", "values of options"),
    ("kernel", "Triton kernels that operators replace"),
    ("parser", "the parser of `vllm serve`"),
    ("warm-up", "the warm-up of the first model runner"),
    ("weights", "forms of weights"),
    ("experts", "experts"),
    ("graphs", "graphs"),
    ("operator", "schemas of vLLM's own operators"),
    ("torch.cuda", "modules that say torch.cuda"),
)


def kept(minor: str) -> reading.Facts:
    """The facts of a release that flagos serves."""
    found: reading.Facts = json.loads((KEPT / f"{minor}.json").read_text())
    return found


def changes(
    before: reading.Facts, after: reading.Facts
) -> list[tuple[str, str, str | None, str | None]]:
    """(kind, fact, before, after) of each fact that is not the same; None where it is not there."""
    keys = sorted(before.keys() | after.keys(), key=lambda key: (_place(key), key))
    return [
        (KINDS[_place(key)][1], key, before.get(key), after.get(key))
        for key in keys
        if before.get(key) != after.get(key)
    ]


def _place(key: str) -> int:
    return next(n for n, (begin, _) in enumerate(KINDS) if key.startswith(begin))


def fetch(number: str, into: Path) -> Path:
    """A release's sources, by pip. Raises RuntimeError with what pip says if it cannot."""
    needs = Path(__file__).resolve().parents[4] / "requirements" / "vllm-build.txt"
    pip = [sys.executable, "-m", "pip", "--quiet"]
    build = str(into / "build")
    variables = {
        **os.environ,
        "PYTHONPATH": build,
        "VLLM_TARGET_DEVICE": "empty",
        "VLLM_VERSION_OVERRIDE": number,
    }
    for command in (
        [*pip, "install", "--no-deps", "--target", build, "-r", str(needs)],
        # pip asks the sources for their metadata.
        [
            *pip,
            "download",
            "--no-deps",
            "--no-build-isolation",
            "--no-binary",
            "vllm",
            "-d",
            str(into),
            f"vllm=={number}",
        ],
    ):
        done = subprocess.run(command, env=variables, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(
                f"pip has no sources of vLLM {number}: {done.stderr.strip()[-2000:]}"
            )
    (archive,) = into.glob("vllm-*.tar.gz")
    with tarfile.open(archive) as opened:
        opened.extractall(into, filter="data")
    return into / archive.name.removesuffix(".tar.gz")


def nearest(number: str) -> str:
    """The minor release that flagos serves whose number is nearest."""

    def second(one: str) -> int:
        return int(one.split(".")[1])

    return min(releases.RELEASES, key=lambda one: abs(second(one.minor) - second(number))).minor


def main(arguments: list[str] | None = None) -> int:
    """Runs the command. Returns 1 if a fact changed."""
    parser = argparse.ArgumentParser(prog="make vllm-diff", description=__doc__)
    parser.add_argument("release", help="such as 0.33.0")
    parser.add_argument("--sources", type=Path, help="a folder with the release's vllm/ and csrc/")
    parser.add_argument("--against", help="a release that flagos serves, such as 0.26")
    parser.add_argument("--keep", action="store_true", help="write its facts beside this program")
    given = parser.parse_args(arguments)
    if not re.fullmatch(r"\d+\.\d+(\.\d+)?(\.?\w+)?", given.release):
        parser.error(f"{given.release!r} is no release: write a number such as 0.33.0")
    against = given.against or nearest(given.release)
    if not given.keep and not (KEPT / f"{against}.json").is_file():
        known = ", ".join(one.minor for one in releases.RELEASES)
        parser.error(f"no facts of {against!r} are kept: --against takes one of {known}")
    with tempfile.TemporaryDirectory() as folder:
        try:
            sources = given.sources or fetch(given.release, Path(folder))
            if not (sources / "vllm" / "platforms").is_dir():
                parser.error(f"{sources} has no vllm/platforms: write a folder with vLLM's sources")
            facts = reading.read(sources)
            entry = reading.release(sources, given.release)
        except RuntimeError as error:
            print(error, file=sys.stderr)
            return 2
    if given.keep:
        file = KEPT / f"{releases.minor(given.release)}.json"
        file.write_text(json.dumps(facts, indent=0, sort_keys=True) + "\n")
        print(f"wrote {file.name}, {len(facts)} facts")
        return 0
    found = changes(kept(against), facts)
    print(f"vLLM {given.release} beside {against}: {len(found)} of {len(facts)} facts changed")
    for kind, rows in groupby(found, key=lambda row: row[0]):
        print(f"\n{kind}")
        for _, key, before, after in rows:
            if before is None:
                print(f"  + {key} {after}".rstrip())
            elif after is None:
                print(f"  - {key}")
            else:
                print(f"  ! {key}\n      {before}\n      {after}")
    print(f"\nits entry of vllm_flagos.releases:\n{entry}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
