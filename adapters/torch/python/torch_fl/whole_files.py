"""Checks that the file of a native module is complete.

A full disk or an upgrade that was interrupted leaves a file that ends too early. Opening it ends the process with
SIGBUS, which nothing can catch.
"""

from __future__ import annotations

import struct
import sys
from importlib.util import find_spec
from pathlib import Path

# The header of a 64-bit ELF file (elf.h, Elf64_Ehdr): where the tables of segments and sections are, how long their
# entries, how many. An entry of the segments' table (Elf64_Phdr) has its offset and its length in the file.
_HEADER = struct.Struct("<16xHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")


def require(*modules: str) -> None:
    """Raise ImportError when the file of one of `modules` is missing or shorter than it says itself."""
    for module in modules:
        if sys.modules.get(module) is not None:
            continue  # loaded already
        spec = find_spec(module)
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)
        require_whole(Path(spec.origin), module)


def require_whole(file: Path, module: str | None = None) -> None:
    """Raise ImportError, for the native module `module` if it is one, when a file is shorter than it says itself."""
    length, needed = file.stat().st_size, length_of(file)
    if length < needed:
        raise ImportError(
            f"{file} has {length} bytes of {needed}: it was not written to its end", name=module
        )


def length_of(file: Path) -> int:
    """Bytes that an ELF file must have by its own tables; 0 for a file that is not little-endian 64-bit ELF."""
    with file.open("rb") as opened:
        header = opened.read(_HEADER.size)
        if not header.startswith(b"\x7fELF\x02\x01"):
            return 0
        if len(header) < _HEADER.size:
            return _HEADER.size
        _, _, _, _, segments, sections, _, _, entry, count, section, section_count, _ = (
            _HEADER.unpack(header)
        )
        needed: int = max(segments + entry * count, sections + section * section_count)
        opened.seek(segments)
        table = opened.read(entry * count)
    for start in range(0, len(table) - _SEGMENT.size + 1, max(entry, _SEGMENT.size)):
        _, _, offset, _, _, in_file, _, _ = _SEGMENT.unpack_from(table, start)
        needed = max(needed, offset + in_file)
    return needed
