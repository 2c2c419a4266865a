"""Kernel packs: what FlagGems' operators launch for the calls of recorded programs, compiled, in one file.

A pack has for each call what `torch_fl.python_kernels.capture` records of it, and the programs of its kernels. A
process with a pack (`pack_in_use`) repeats these calls from C++: without FlagGems, Triton's compiler or tuning.

The file is a header that tells, and data that is mapped into memory as it lies:

    8 bytes    the letters FLGPACK and a line feed
    8 bytes    the size of the header, little-endian
    32 bytes   the SHA-256 of everything behind it
    header     JSON, filled up with spaces
    data       at a multiple of 64 bytes: words of eight bytes, little-endian, then names, then programs

Places in the header count from the beginning of the data. `rows` of an operator are the first word of its table and the
number of rows in it, which `csrc/python_kernels/packed.h` describes.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from flagos import whole_file
from torch_fl.flaggems.table_file import Verdict

FORMAT = 1
"""Raised with every change of the file, of recordings or of signatures: an older pack is refused."""

SUFFIX = ".flagospack"
_MAGIC = b"FLGPACK\n"
_BEGIN = len(_MAGIC) + 8 + 32
_ALIGNMENT = 64
_WORD = 8
FASTER = 1  # kFaster of packed.h


class BrokenPack(ValueError):
    """A file that is no pack, or not the one that was written."""


@dataclass(frozen=True)
class Kernel:
    """A program for a chip (`image`, a cubin), its function, and the dynamic shared memory of its launches in bytes."""

    image: bytes
    name: str
    shared_bytes: int


@dataclass(frozen=True)
class PackedCall:
    """One call: its signature, its recording with numbers of kernels for handles, and where these are in it."""

    signature: tuple[int, ...]
    recording: tuple[int, ...]
    kernels: tuple[int, ...]
    faster: bool = False


class Operator(TypedDict):
    """The entry of an overload in the header."""

    rows: list[int]  # the first row and their number
    faster: int  # how many calls are faster than the native kernel
    function: str
    verified: Verdict


Configurations = dict[str, dict[str, dict[str, Any]]]
"""By kernel and key: the arguments of a configuration of Triton."""


class _About(TypedDict):
    vendor: str
    chip: str
    arch: int
    driver: int  # CUDA's version, as 12080
    flaggems: str
    torch: str
    triton: str
    made: str
    records: list[str]


class About(_About, total=False):
    """How a pack was made, and what it lacks."""

    operators: dict[str, dict[str, Any]]
    left_out: dict[str, dict[str, int]]  # by overload and reason: how many recorded calls
    configurations: Configurations


class Header(_About):
    """The header of a pack."""

    format: int
    operators: dict[str, Operator]
    left_out: dict[str, dict[str, int]]
    configurations: Configurations
    kernels: list[list[int]]  # place and size of the program, place of the name, shared bytes


@dataclass
class Contents:
    """The contents of a pack: calls by overload, kernels, and further facts for the header."""

    about: About
    kernels: list[Kernel] = field(default_factory=list)
    calls: dict[str, list[PackedCall]] = field(default_factory=dict)


class Pack:
    """A pack in memory, whose every byte was checked. It stays mapped as long as this object lives."""

    def __init__(self, path: Path, mapped: mmap.mmap, header: Header, data: int) -> None:
        self.path = path
        self.header = header
        self._mapped = mapped
        self._data = data

    @property
    def digest(self) -> str:
        """The SHA-256 of its contents, in hexadecimal."""
        return bytes(self._mapped[len(_MAGIC) + 8 : _BEGIN]).hex()

    @cached_property
    def verdicts(self) -> dict[str, Verdict]:
        """The verdicts by which it was made, by overload."""
        return {name: one["verified"] for name, one in self.header["operators"].items()}

    def not_served(self, overload: str, only_faster: bool) -> str | None:
        """Why no call of an overload is served from here, if only those that are faster are; None if some are."""
        found = self.header["operators"].get(overload)
        if found is None:
            return f"it is not in the pack {self.path}"
        if only_faster and not found["faster"]:
            return f"measured slower than the native kernel in all calls of the pack {self.path}"
        return None

    @property
    def nbytes(self) -> int:
        """The size of the data, in bytes."""
        return len(self._mapped) - self._data

    @property
    def address(self) -> int:
        """The address of the data."""
        return ctypes.addressof(ctypes.c_char.from_buffer(self._mapped, self._data))

    def words(self, first: int, count: int) -> tuple[int, ...]:
        """Some words of the data."""
        return struct.unpack_from(f"<{count}q", self._mapped, self._data + _WORD * first)

    def calls(self, overload: str) -> list[PackedCall]:
        """The calls of an overload."""
        first, count = self.header["operators"][overload]["rows"]
        found = []
        for row in range(count):
            of_row = self.words(first + 7 * row, 7)
            signature, recording, kernels = (
                self.words(*of_row[place : place + 2]) for place in (0, 2, 4)
            )
            found.append(PackedCall(signature, recording, kernels, bool(of_row[6] & FASTER)))
        return found

    def image(self, kernel: int) -> bytes:
        """The program of a kernel."""
        place, nbytes, _, _ = self.header["kernels"][kernel]
        return bytes(self._mapped[self._data + place : self._data + place + nbytes])


def write(path: Path, contents: Contents) -> str:
    """Write a pack, whole or not at all, and return the SHA-256 of its contents.

    The same contents give the same bytes.
    """
    words: list[int] = []
    places: dict[tuple[int, ...], int] = {}

    def place(some: Iterable[int]) -> tuple[int, int]:
        of = tuple(some)
        if of not in places:
            places[of] = len(words)
            words.extend(of)
        return places[of], len(of)

    operators: dict[str, dict[str, Any]] = {}
    for overload, calls in sorted(contents.calls.items()):
        ordered = sorted(calls, key=lambda call: (len(call.signature), _unsigned(call.signature)))
        rows: list[int] = []
        for call in ordered:
            rows += [*place(call.signature), *place(call.recording), *place(call.kernels)]
            rows.append(FASTER if call.faster else 0)
        operators[overload] = {
            "rows": [len(words), len(ordered)],
            "faster": sum(call.faster for call in ordered),
        }
        words.extend(rows)
    data = bytearray(struct.pack(f"<{len(words)}q", *words))
    names = {}
    for kernel in contents.kernels:
        if kernel.name not in names:
            names[kernel.name] = len(data)
            data += kernel.name.encode() + b"\0"
    kernels: list[list[int]] = []
    images: dict[bytes, int] = {}
    for kernel in contents.kernels:
        if kernel.image not in images:
            data += b"\0" * (-len(data) % _ALIGNMENT)
            images[kernel.image] = len(data)
            data += kernel.image
        kernels.append(
            [images[kernel.image], len(kernel.image), names[kernel.name], kernel.shared_bytes]
        )
    for overload, facts in contents.about.get("operators", {}).items():
        operators[overload] |= facts
    header = {"format": FORMAT, **contents.about, "operators": operators, "kernels": kernels}
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode()
    text += b" " * (-(_BEGIN + len(text)) % _ALIGNMENT)
    digest = hashlib.sha256(text + data).digest()
    path.parent.mkdir(parents=True, exist_ok=True)
    whole_file.write(path, _MAGIC + struct.pack("<Q", len(text)) + digest + text + data)
    return digest.hex()


def _unsigned(words: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(word % (1 << 64) for word in words)


def is_pack(path: Path) -> bool:
    """Whether a file begins as a pack does."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read(path: Path) -> Pack:
    """Map a pack, and check every byte of it. Raises BrokenPack, whose message names the file and what is wrong."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < _BEGIN:
                raise BrokenPack(f"{path} is no kernel pack: it has {size} bytes")
            # Copied when written to, which nobody does: a read-only map has no address in Python.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise BrokenPack(
            f"{path} cannot be read: {error.strerror}; `flagos pack -o FILE` makes a pack"
        ) from error
    if mapped[: len(_MAGIC)] != _MAGIC:
        raise BrokenPack(f"{path} is no kernel pack: `flagos pack -o FILE` makes one")
    (length,) = struct.unpack_from("<Q", mapped, len(_MAGIC))
    with memoryview(mapped) as view, view[_BEGIN:] as signed:
        found = hashlib.sha256(signed).digest()
    if _BEGIN + length > size or found != mapped[len(_MAGIC) + 8 : _BEGIN]:
        raise BrokenPack(
            f"{path} is not as it was written: its {size} bytes do not have the SHA-256 that it names (it was "
            "truncated or altered); copy it again, or make it anew with `flagos pack`"
        )
    # What follows was written by `write`, or by somebody who computes hashes.
    try:
        header = json.loads(mapped[_BEGIN : _BEGIN + length])
        made_as = header["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise BrokenPack(f"{path} has no header: {type(error).__name__}: {error}") from None
    if made_as != FORMAT:
        raise BrokenPack(
            f"{path} is a pack of format {made_as}, and this flagos reads format {FORMAT}: make it anew with "
            "`flagos pack`"
        )
    return Pack(path, mapped, header, _BEGIN + length)
