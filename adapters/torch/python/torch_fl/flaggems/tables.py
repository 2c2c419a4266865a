"""Verdicts on FlagGems' overloads and their measured speeds, by chip.

Tables are JSON files, shipped with this package (compressed) or written by `flagos verify` and `flagos tune` into
`$XDG_DATA_HOME/flagos`; a user's table beats the shipped one of the same chip and version.
"""

from __future__ import annotations

import datetime
import os
import sys
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from torch_fl import flaggems_versions
from torch_fl.flaggems import configurations, envelope, pack_in_use, package, sizes
from torch_fl.flaggems.presence import ON_USE, POLICY
from torch_fl.flaggems.presence import policy as policy
from torch_fl.flaggems.table_file import (
    BASIC,
    FAILED,
    STRICT,
    UNTESTED,
    Speed,
    Table,
    Times,
    Verdict,
    partial,
    read,
    write,
)
from torch_fl.native import native

SHIPPED = flaggems_versions.FOLDER
# The boards H100 SXM5 and H200 have the same processor, GH100 of 132 multiprocessors, and differ in their memory: the
# same programs run on both, at other speeds. What an H100 found of the shipped records agrees with the H200's table
# (docs/benchmarks/nvidia.md#2026-11-25-evening-models-graphs-packs-h100).
_SAME_PROCESSOR = {"NVIDIA H100 80GB HBM3": "NVIDIA H200"}
_MADE_BY = {"verdicts": "flagos verify", "speed": "flagos tune"}
_UNKNOWN: Verdict = {"verdict": UNTESTED}
# What two measurements of the same differ by, as a ratio, and on the device also in microseconds.
NO_SLOWER, NO_LATER = 1.02, 0.25
FASTER = 0.97
VERIFIED_FIRST = "another process verifies a call before it is served"
_assumed: dict[str, Table] = {}


def folder() -> Path:
    """The folder of this user's tables."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "flagos"


@cache
def chip() -> str:
    """The product name of the first device; empty where it is not known without initialising the device."""
    return native().product_name()


def assume(verdicts: Path) -> None:
    """Take the verdicts in a file for those of this machine's chip, from now on. Raises RuntimeError for no table."""
    found = read(verdicts, "verdicts")
    if found is None:
        raise RuntimeError(f"{verdicts} is no file: `flagos verify` writes a table of verdicts")
    _assumed["verdicts"] = found
    _table.cache_clear()


def file_name(kind: str, chip_name: str, version: str, triton: str | None = None) -> str:
    """The name of a table: `verdicts` or `speed`. `triton` is Triton's back end, which NVIDIA's tables do not name."""
    by = f".{triton}" if triton not in (None, "nvidia") else ""
    return f"{kind}.{chip_name.replace(' ', '_')}{by}.flaggems-{version}.json"


def shipped(kind: str, chip_name: str, version: str, triton: str | None = None) -> Path:
    """Where a table is that the package ships, compressed."""
    return SHIPPED / version / f"{file_name(kind, chip_name, version, triton)}.gz"


def _triton() -> str | None:
    """Triton's back end, where it does not follow from the chip: torch's devices have several vendors' compilers."""
    return native().triton_backend if native().device_type is not None else None


def sources(kind: str, chip_name: str, triton: str | None = None) -> list[Path]:
    """The possible paths of tables about a chip, in order of precedence: the user's, the shipped, and, of verdicts, the
    shipped one of a chip with the same processor."""
    version = package.version()
    found = [
        folder() / file_name(kind, chip_name, version, triton),
        shipped(kind, chip_name, version, triton),
    ]
    if kind == "verdicts" and (same := _SAME_PROCESSOR.get(chip_name)) is not None:
        found.append(shipped(kind, same, version, triton))
    return found


def path_for(kind: str, out: Path | None, whole: bool) -> Path | None:
    """The path of a table: `out`, or for a `whole` table the path that the plan reads."""
    if out is None and whole:
        return folder() / file_name(kind, chip(), package.version(), _triton())
    return out


def table(overloads: Mapping[str, Any], **about: Any) -> Table:
    """The table of this chip; `about` says how it was made, beside the chip, the date and the versions."""
    made: Table = {
        "chip": chip(),
        "date": datetime.date.today().isoformat(),
        "flaggems": package.version(),
        "torch": torch.__version__,
        **about,  # type: ignore[typeddict-item]
        "overloads": dict(overloads),
    }
    return made


def keep_partial(path: Path | None, overloads: Mapping[str, Any], **about: Any) -> Table:
    """The table of a run that did not come to its end, beside `path`."""
    made = table(overloads, **about)
    if path is not None:
        write(partial(path), made)
        print(f"what there is lies in {partial(path)}: --resume goes on", file=sys.stderr)
    return made


def keep(
    path: Path | None,
    overloads: Mapping[str, Any],
    reached: set[str],
    complete: bool,
    kind: str = "verdicts",
    **about: Any,
) -> Table:
    """The table at the end of a run, written to `path` where there is one.

    Overloads that were not `reached` keep the entries of a table that was made alike. One that was made
    otherwise is replaced only by a `complete` run.
    """
    if path is None:
        print("this is only a part: the table was not kept (--out keeps it)", file=sys.stderr)
        return table(overloads, **about)
    try:
        before = _overloads(path, kind, **about)
    except RuntimeError as error:
        if not complete:
            print(f"{path} stays as it is: {error}", file=sys.stderr)
            return keep_partial(path, overloads, **about)
        print(f"{path} is made anew: {error}", file=sys.stderr)
        before = {}
    unreached = {name: entry for name, entry in before.items() if name not in reached}
    if unreached and kind == "verdicts":
        about = {**carried(path), **about}
    made = table({**overloads, **unreached}, **about)
    write(path, made)
    partial(path).unlink(missing_ok=True)
    before_it = f", {len(unreached)} of its entries as they were before" if unreached else ""
    print(f"wrote {path}{before_it}", file=sys.stderr)
    return made


def continued(path: Path | None, kind: str = "verdicts", **about: Any) -> dict[str, Any]:
    """The overloads to go on from: of the partial table beside `path`, or else of the table; none without either.

    Raises RuntimeError for a table of another chip, other versions or another way of making it, and for a broken one.
    """
    if path is None:
        return {}
    source = to_continue(path)
    try:
        return _overloads(source, kind, **about)
    except RuntimeError as error:
        raise RuntimeError(
            f"{source} cannot be resumed: {error}; remove it, or leave out --resume"
        ) from error


def made_alike(path: Path, **about: Any) -> bool:
    """Whether there is a table of verdicts that a run as `about` says, here, completes instead of replacing it."""
    try:
        return bool(_overloads(path, "verdicts", **about))
    except RuntimeError:
        return False


def _overloads(path: Path, kind: str, **about: Any) -> dict[str, Any]:
    """The entries of a table that was made here as `about` says; none without a table."""
    before = read(path, kind)
    if before is None:
        return {}
    for name, value in table({}, **about).items():
        if name not in ("date", "overloads") and before.get(name) != value:
            raise RuntimeError(f"its {name} is {before.get(name)!r}, and here it is {value!r}")
    return dict(before["overloads"])


def samples_from() -> str | None:
    """The chip with the same processor from whose table the verdicts are, or on whose samples they rest; or None."""
    if "verdicts" in _assumed:
        return None
    known = _table("verdicts")
    other = known.get("samples_from") or known.get("chip")
    return str(other) if other is not None and other == _SAME_PROCESSOR.get(chip()) else None


def carried(path: Path | None) -> dict[str, str]:
    """The fields that a table passes to the one that continues it: the chip whose samples it rests on.

    Raises RuntimeError for a file that is no table.
    """
    found = (read(path, "verdicts") if path is not None else None) or {}
    return {"samples_from": found["samples_from"]} if "samples_from" in found else {}


def to_continue(path: Path) -> Path:
    """The file to go on from: the partial table beside `path`, or else the table."""
    return partial(path) if partial(path).is_file() else path


def current(path: Path | None = None) -> Table | None:
    """The table of verdicts in a file, or else the one that the plan reads; None where there is none.

    That of a chip with the same processor is this chip's from then on, and `samples_from` tells whose samples it has.

    Raises RuntimeError for a file that is no table.
    """
    found = (read(path, "verdicts") if path is not None else None) or _table("verdicts") or None
    same = _SAME_PROCESSOR.get(chip())
    if found is not None and same is not None and found.get("chip") == same:
        found = {**found, "chip": chip(), "samples_from": same}
    return found


@cache
def _table(kind: str) -> Table:
    if kind in _assumed:
        return _assumed[kind]
    for path in sources(kind, chip(), _triton()):
        try:
            found = read(path, kind)
        except RuntimeError as error:
            warnings.warn(
                f"{path} is not used: {error}; remove it, or run `{_MADE_BY[kind]}`",
                RuntimeWarning,
                stacklevel=2,
            )
            continue
        if found is not None:
            return found
    return {}


def verdicts() -> dict[str, Verdict]:
    """For each overload: `verdict` (STRICT, BASIC, FAILED, UNTESTED), `cases`, and `first`, the first that failed.

    `plain` is the verdict on the database's own samples alone. With `only`, the verdict is about calls for which
    these conditions hold (`envelope.CONDITIONS`), and `first` failed outside. Where a table says nothing of an
    overload, the pack in use does.
    """
    found: dict[str, Verdict] = _table("verdicts").get("overloads", {})
    pack = pack_in_use.in_use()
    return found if pack is None else {**pack.verdicts, **found}


def speed() -> dict[str, Speed]:
    """For each overload the measured times of FlagGems and of the native kernel, by class of calls."""
    found: dict[str, Speed] = _table("speed").get("overloads", {})
    return found


def is_faster(times: Times) -> bool:
    """Whether FlagGems is no slower on the host and on the device, and faster on one of them."""
    (host, native_host), (device, native_device) = times["host"], times["device"]
    no_slower = host <= NO_SLOWER * native_host and (
        device <= NO_SLOWER * native_device or device <= native_device + NO_LATER
    )
    return no_slower and min(host / native_host, device / native_device) <= FASTER


def faster(speeds: Speed) -> list[str]:
    """The classes of which every measured call is faster, in words."""
    return [words for words, one in speeds.items() if all(map(is_faster, one["calls"].values()))]


def faster_classes(overload: str) -> tuple[int, ...] | None:
    """The numbers of the classes whose calls the policy has it serve; None where their speed is no matter.

    A pack has the speeds of its own calls.
    """
    if policy() != "auto" or pack_in_use.in_use() is not None:
        return None
    speeds = speed().get(overload, {})
    numbers = (int(speeds[words]["number"], 16) for words in faster(speeds))
    return tuple(n - (1 << 64) if n >> 63 else n for n in numbers)  # as C++ takes them


def speed_condition(overload: str) -> str | None:
    """The condition of the policy on speed, in words; None where it has none."""
    if faster_classes(overload) is None:
        return None
    speeds = speed().get(overload, {})
    words = faster(speeds)
    shown = "; ".join(words[:6]) + ("; ..." if len(words) > 6 else "")
    return (
        f"its class is one of the {len(words)} of {len(speeds)} in which it was measured to be faster ({shown}), and "
        "its signature has come often enough to be replayed"
    )


def only(overload: str) -> frozenset[str]:
    """The conditions it was verified within, one of which is ORDINARY; none where it is not known to be right."""
    known = verdicts().get(overload, _UNKNOWN)
    if known["verdict"] not in (STRICT, BASIC):
        return frozenset()
    return frozenset([*known.get("only", ()), envelope.ORDINARY])


def verified_sizes(overload: str) -> sizes.Classes:
    """The classes of sizes it was verified in, the samples' where an entry has none; none where it is not right."""
    known = verdicts().get(overload, _UNKNOWN)
    if known["verdict"] not in (STRICT, BASIC):
        return {}
    if "sizes" in known:
        return sizes.from_table(overload, known["sizes"])
    return sizes.sampled(overload)


def size_condition(overload: str) -> str | None:
    """The condition on sizes under which the policy has it serve; None where it serves at any size.

    Under `verify-on-use` a call of another size is verified first, which is no condition. Where a pack alone serves,
    its calls kept the sizes of the table it was made by, which may know more than this one; what was found to be
    wrong from some size on stays a condition.
    """
    if policy() not in ("auto", "verified") or not (known := verified_sizes(overload)):
        return None
    if pack_in_use.alone() and "beyond" not in verdicts()[overload]:
        return None
    return sizes.condition(known)


def chip_of(entry: Verdict | None = None) -> str:
    """The chip that the table, or an entry of it, is of, and if it is another one, why it counts here."""
    here, other = chip() or "this chip", samples_from()
    if other is None or (entry is not None and entry.get("wrong_on") == here):
        return here
    return f"{other}, whose processor {here} has"


def description(overload: str) -> tuple[str, str] | None:
    """The verdict, and what it rests on, in words; None where there is none on this chip."""
    known = verdicts().get(overload)
    if known is None:
        unknown = flaggems_versions.why_unknown(package.version())
        return None if unknown is None else (UNTESTED, f"{unknown}: {VERIFIED_FIRST}")
    where = f"on {chip_of(known)}"
    if known["verdict"] != STRICT:
        return known["verdict"], f"{where}: {known.get('first') or 'no case reached it'}"
    if policy() in ("auto", "verified", ON_USE):
        where += f", {configurations.description()}"
    if "only" not in known:
        return STRICT, f"{where}, in {known['cases']} cases"
    inside = f", in {known['inside']} cases" if "inside" in known else ""
    return STRICT, f"{where} within these conditions{inside}; wrong outside: {known['first']}"


def not_by_default(overload: str) -> str | None:
    """Why the default order does not take it; None when it does."""
    wanted = policy()
    known = verdicts().get(overload)
    where = chip() or "this chip"
    if known is not None and known["verdict"] == FAILED:
        return f"verified to be wrong on {chip_of(known)}: {known['first']}"
    if wanted == "off":
        return f"native kernels serve by default: route it here, or set {POLICY}=auto"
    if wanted == "all":
        return None
    if known is None:
        if wanted == ON_USE and flaggems_versions.why_unknown(package.version()) is not None:
            return None
        return f"not verified on {where}: run `flagos verify`, or set {POLICY}=all"
    if known["verdict"] != STRICT:
        return f"verified {known['verdict']} on {chip_of(known)}: {known.get('first') or 'no case reached it'}"
    pack = pack_in_use.in_use()
    if pack is not None and not pack_in_use.outside():
        return pack.not_served(overload, only_faster=wanted == "auto")
    if wanted in ("verified", ON_USE):
        return None
    measured = speed().get(overload)
    if not measured:
        return f"its speed is not known on {where}: run `flagos tune`, or set {POLICY}=verified"
    if not faster(measured):
        return f"measured on {where} and faster than the native kernel in none of {len(measured)} classes of calls"
    return None
