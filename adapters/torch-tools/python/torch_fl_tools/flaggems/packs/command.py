"""Compiles FlagGems' verified operators for the calls of recorded programs, into one file: a kernel pack.

    flagos pack [-o FILE] [--record FILE...] [--ops PATTERNS] [--for CHIP] [--tuning FILE] [--json]
    flagos pack --show FILE [--json]

Examples:
  flagos record -o train.rec -- python train.py --steps 2
  flagos pack --record train.rec -o train.flagospack                  # on a machine with the GPU
  flagos pack --for sm_90 --record train.rec -o train.flagospack      # on any machine with Triton
  FLAGOS_PACK=train.flagospack FLAGOS_FLAGGEMS=verified python train.py

A process with a pack launches its kernels without FlagGems, Triton's compiler and tuning; calls that are not in the
pack go to the native kernel, and are counted. Without --record the shipped records are packed. A call is packed if its
overload is verified STRICT on the chip, at its size; the command prints the reasons for all other calls, and the file
has them, too. With a GPU, FlagGems' kernels and the native ones are measured, for FLAGOS_FLAGGEMS=auto.

Tuned kernels run the verified configuration, or the one that --tuning names (a tuning file or another pack). With a
GPU the first N configurations of --tune are measured for each call, and the fastest one that another process verifies
is packed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from flagos.cli import output_files
from torch_fl.flaggems import (
    configurations,
    implementations,
    interpreted,
    pack_file,
    pack_in_use,
    package,
    table_file,
    tables,
)
from torch_fl.native import native
from torch_fl_tools.comparing.names import matches
from torch_fl_tools.flaggems import cache_folder
from torch_fl_tools.flaggems.command import at_least_one
from torch_fl_tools.flaggems.packs import making, measuring, without_device
from torch_fl_tools.records import files
from torch_fl_tools.records.facts import BrokenRecord, Call

_DEFAULT = Path(f"flagos{pack_file.SUFFIX}")


def main(arguments: list[str] | None = None) -> int:
    """The command `flagos pack`."""
    options = _parser().parse_args(arguments)
    try:
        if options.show is not None:
            return _show(options.show, options.json)
        return _pack(options)
    except (pack_file.BrokenPack, BrokenRecord, RuntimeError, ValueError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="flagos pack",
        usage="flagos pack [-o FILE] [--record FILE...] [--ops PATTERNS] [--for CHIP] [--tuning FILE] [--json]\n"
        "       flagos pack --show FILE [--json]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("-o", "--out", type=Path, default=_DEFAULT, metavar="FILE", help="default: %(default)s")
    add(
        "--record",
        type=Path,
        nargs="+",
        metavar="FILE",
        help="records of programs (default: the shipped ones)",
    )
    add("--ops", default="*", help="shell patterns of overloads: 'add*,mm'")
    add(
        "--for",
        dest="chip",
        metavar="CHIP",
        help="a chip of another machine, by its architecture (sm_90) or product name",
    )
    add("--tuning", type=Path, metavar="FILE", help="configurations of tuned kernels")
    add(
        "--tune",
        type=at_least_one,
        default=4,
        metavar="N",
        help="with a GPU: measure N configurations of a tuned kernel for each call (default: 4)",
    )
    add(
        "--verdicts",
        type=Path,
        metavar="FILE",
        help="a table of `flagos verify` (default: the chip's)",
    )
    add(
        "--no-times",
        action="store_true",
        help="measure nothing: no call of the pack serves with FLAGOS_FLAGGEMS=auto",
    )
    add("--show", type=Path, metavar="FILE", help="print a pack; make none")
    add("--json", action="store_true", help="print the result as JSON")
    return parser


def _pack(options: argparse.Namespace) -> int:
    began = time.monotonic()
    output_files.require_writable(options.out, _DEFAULT.name)
    if os.environ.get(pack_in_use.PACK):
        raise RuntimeError(
            f"{pack_in_use.PACK} is set: a pack is made without one in use, so unset it"
        )
    paths = options.record or files.shipped()
    calls = files.merged(call for path in paths for call in files.read(path))
    target = _target(options.chip)
    _take_tables(options, target)
    named: configurations.Named = {}
    if options.tuning is not None:
        named = configurations.read(options.tuning)
    wanted = _by_overload(calls, options.ops)
    if not wanted:
        chip = target.name if target else tables.chip() or "this machine"
        raise RuntimeError(
            f"nothing is to be packed: of the {len(calls)} recorded calls none is of an overload that matches "
            f"{options.ops!r} and is verified on {chip}; `flagos verify` verifies, `--verdicts` names a table"
        )
    if interpreted.wanted():
        raise RuntimeError(
            "TRITON_INTERPRET has Triton interpret kernels, and a pack is made of compiled ones: unset it"
        )
    here = target is None
    maker = making.Maker(target, named, options.tune if here and not named else 1)
    with ExitStack() as stack:
        stack.callback(maker.close)
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")  # of Triton, about FlagGems' kernels
        if target is not None:
            stack.enter_context(without_device.chip_without_device(target))
        stack.enter_context(maker.launches_by_triton())
        for number, (overload, of_overload) in enumerate(sorted(wanted.items()), 1):
            heading = f"[{number}/{len(wanted)}] {overload}: {len(of_overload)} calls"
            print(heading, end="", file=sys.stderr, flush=True)
            maker.add(overload, of_overload, lambda call: None)
            packed = len(maker.made.calls.get(overload, {}))
            print(f", {packed} signatures packed", file=sys.stderr, flush=True)
        driver = _cuda_of_programs()
    made = maker.made
    if not any(made.calls.values()):
        why = "; ".join(
            f"{name}: {next(iter(some))}" for name, some in sorted(made.left_out.items())
        )
        raise RuntimeError(f"no call could be packed, and {options.out} is not written: {why}")
    about = _about(target, driver, [path.name for path in paths])
    contents = making.contents(made, about)
    if here and not options.no_times:
        pack_file.write(options.out, contents)
        with ExitStack() as stack:
            try:
                stack.enter_context(cache_folder.alone("measuring"))
            except OSError as error:
                _say(f"others that measure are not waited for: {error}")
            measured = measuring.measure(pack_in_use.opened(options.out), made, _say)
        contents = measuring.with_times(contents, measured)
    digest = pack_file.write(options.out, contents)
    summary = _summary(options.out, digest, made, contents, time.monotonic() - began)
    if options.json:
        print(json.dumps({**summary, "left_out": contents.about["left_out"]}))
    else:
        print(
            f"wrote {options.out}: {summary['calls']} calls of {summary['operators']} operators with "
            f"{summary['signatures']} signatures, {summary['kernels']} kernels, {summary['nbytes'] / 1e6:.1f} MB, "
            f"for {summary['chip']}, in {summary['seconds']:.0f} s\n"
            f"  {digest}",
            file=sys.stderr,
        )
        for overload, reasons in contents.about["left_out"].items():
            first = max(reasons, key=lambda reason: reasons[reason])
            print(
                f"  {overload}: {sum(reasons.values())} calls are not in it: {first}",
                file=sys.stderr,
            )
    return 0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _target(name: str | None) -> without_device.Chip | None:
    """The chip that is compiled for without being here; None for this machine's."""
    here = not native().host_computes
    if here and native().vendor != "cuda":
        raise RuntimeError(
            f"packs are made for NVIDIA's devices, and here are devices of vendor {native().vendor!r}; "
            "FLAGOS_VENDOR=host and --for make one for a chip that is not here"
        )
    if name is None:
        if here:
            return None
        raise RuntimeError(
            "this machine has no device that Triton compiles for: name the chip, as in `flagos pack --for sm_90`"
        )
    if here:
        raise RuntimeError(
            f"this machine has {tables.chip() or 'a device'}: without --for the pack is made on it, and with "
            "FLAGOS_VENDOR=host as on a machine without a GPU"
        )
    return without_device.chip(name)


def _take_tables(options: argparse.Namespace, target: without_device.Chip | None) -> None:
    path: Path | None = options.verdicts
    if path is None and target is not None:
        found = [one for one in tables.sources("verdicts", target.name) if one.is_file()]
        if not found:
            raise RuntimeError(
                f"there is no table of verdicts for {target.name} with FlagGems {package.version()}: `flagos verify` "
                "makes one on the chip, and --verdicts names it"
            )
        path = found[0]
    if path is not None:
        tables.assume(path)


def _by_overload(calls: list[Call], pattern: str) -> dict[str, list[Call]]:
    found: dict[str, list[Call]] = {}
    known, verdicts = implementations.registered(), tables.verdicts()
    for call in calls:
        name = call.overload
        strict = name in verdicts and verdicts[name]["verdict"] == table_file.STRICT
        if name in known and strict and matches(name, pattern):
            found.setdefault(name, []).append(call)
    return {name: some for name, some in found.items() if implementations.routed(name)}


def _cuda_of_programs() -> int:
    """The CUDA whose assembler Triton uses, as 12080 for 12.8: drivers for an older one may not take its programs."""
    from triton import knobs

    major, _, minor = knobs.nvidia.ptxas.version.partition(".")
    return int(major) * 1000 + int(minor or 0) * 10


def _about(target: without_device.Chip | None, driver: int, records: list[str]) -> pack_file.About:
    import triton

    return {
        "vendor": "cuda" if target is not None else native().vendor,
        "chip": target.name if target is not None else tables.chip(),
        "arch": target.arch if target is not None else _arch(),
        "driver": driver,
        "flaggems": package.version(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "made": "without a device" if target is not None else "on the chip",
        "records": records,
    }


def _arch() -> int:
    properties = native().properties()[0]
    return properties.major * 10 + properties.minor


def _summary(
    path: Path, digest: str, made: making.Made, contents: pack_file.Contents, seconds: float
) -> dict[str, Any]:
    return {
        "file": str(path),
        "sha256": digest,
        "chip": contents.about["chip"],
        "nbytes": path.stat().st_size,
        "operators": len(contents.calls),
        "calls": sum(len({id(call) for call, _ in some}) for some in made.of_call.values()),
        "signatures": sum(map(len, contents.calls.values())),
        "kernels": len(contents.kernels),
        "seconds": round(seconds, 1),
    }


def _show(path: Path, as_json: bool) -> int:
    pack = pack_file.read(path)
    header = pack.header
    here = pack_in_use.refusal(header, pack_in_use.this_machine())
    if as_json:
        shown = {name: value for name, value in header.items() if name != "kernels"}
        shown |= {"sha256": pack.digest, "refused_here": here, "kernels": len(header["kernels"])}
        print(json.dumps(shown))
        return 0
    for line in _lines(header):
        print(line)
    print(f"SHA-256 {pack.digest}; {path.stat().st_size / 1e6:.1f} MB")
    print("it fits this machine" if here is None else f"it would be refused here: {here}")
    return 0


def _lines(header: pack_file.Header) -> Iterator[str]:
    for name, one in sorted(header["operators"].items()):
        faster = f", {one['faster']} faster than native" if one["faster"] else ""
        yield f"{name}: {one['rows'][1]} signatures{faster}; {one['verified']['verdict']} ({one['function']})"
    for name, reasons in header["left_out"].items():
        for reason, count in reasons.items():
            yield f"{name}: {count} recorded calls are not in it: {reason}"
    yield (
        f"for {header['chip']} (sm_{header['arch']}), drivers for CUDA {pack_in_use.cuda(header['driver'])} or newer, "
        f"torch {header['torch']}, FlagGems {header['flaggems']}; made {header['made']} with Triton {header['triton']}"
    )
