"""What ``CHANGELOG.md`` says of a version, and ``core/include/CHANGELOG.md`` of the versions of the C headers."""

from __future__ import annotations

import re
from pathlib import Path

from tests.release.versions import ROOT

CHANGELOG = "CHANGELOG.md"
HEADERS = "core/include/CHANGELOG.md"
# Header → the constants of its version.
CONSTANTS = {
    "core/include/flagos_vendor.h": ("FLAGOS_VENDOR_MAJOR", "FLAGOS_VENDOR_MINOR"),
    "core/include/flagos_kernels.h": ("FLAGOS_KERNELS_MAJOR", "FLAGOS_KERNELS_MINOR"),
    "core/include/flagos.h": ("FLAGOS_ABI_VERSION",),
    "comm/include/flagos_comm.h": ("FLAGOS_COMM_ABI_VERSION",),
}


def released(version: str, root: Path = ROOT) -> str | None:
    """The date of a version's entry; None if there is no entry with a date."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    heading = rf"^## {re.escape(version)}, (\d{{4}}-\d{{2}}-\d{{2}})$"
    found = re.search(heading, text, re.MULTILINE)
    return found[1] if found else None


def entry(version: str, root: Path = ROOT) -> str:
    """The text of a version's entry, for the notes of its release."""
    text = (root / CHANGELOG).read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(version)}\b.*?\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise ValueError(f"{CHANGELOG} has no entry for {version}")
    return found[1].strip()


def header_version(header: str, root: Path = ROOT) -> str:
    """The version that a header declares, such as ``1.1``."""
    text = (root / header).read_text(encoding="utf-8")
    numbers = []
    for constant in CONSTANTS[header]:
        found = re.search(rf"^#define {constant} (\d+)$", text, re.MULTILINE)
        if found is None:
            raise ValueError(f"{header} has no {constant}")
        numbers.append(found[1])
    return ".".join(numbers)


def newest_entry(header: str, root: Path = ROOT) -> str | None:
    """The newest version of a header that the changelog of headers has; None without its section."""
    text = (root / HEADERS).read_text(encoding="utf-8")
    section = re.search(
        rf"^## {re.escape(Path(header).name)}$(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    found = section and re.search(r"^### ([\d.]+)", section[1], re.MULTILINE)
    return found[1] if found else None
