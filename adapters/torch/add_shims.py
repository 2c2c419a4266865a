"""Adds shims to a wheel of torch_fl: python adapters/torch/add_shims.py WHEEL SHIM....

maturin builds the wheel with all that is the same for every torch. What is compiled for one torch each goes into
`torch_fl/_shims`, and is listed in RECORD as the format of wheels wants it. Writes a new wheel in the place of the old.
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import os
import zipfile
from pathlib import Path

FOLDER = "torch_fl/_shims"


def add(wheel: Path, shims: list[Path]) -> None:
    """Puts `shims` into `wheel`, in the place of all that it has. Nothing is changed when a file cannot be read."""
    new = wheel.with_suffix(".new")
    try:
        with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(new, "w", zipfile.ZIP_DEFLATED) as out:
            record = next(name for name in old.namelist() if name.endswith(".dist-info/RECORD"))
            rows = list(csv.reader(io.StringIO(old.read(record).decode())))
            for info in old.infolist():
                if info.filename != record and not _is_shim(info.filename):
                    out.writestr(info, old.read(info), compress_type=zipfile.ZIP_DEFLATED)
            rows = [row for row in rows if row and not _is_shim(row[0])]
            for shim in sorted(shims):
                data, name = shim.read_bytes(), f"{FOLDER}/{shim.name}"
                info = zipfile.ZipInfo(name)  # of 1980, so that the same build gives the same wheel
                info.external_attr = 0o100755 << 16
                out.writestr(info, data, compress_type=zipfile.ZIP_DEFLATED, compresslevel=9)
                rows.append([name, f"sha256={_digest(data)}", str(len(data))])
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows)
            out.writestr(record, text.getvalue())
        os.replace(new, wheel)
    finally:
        new.unlink(missing_ok=True)


def _is_shim(name: str) -> bool:
    return name.startswith(f"{FOLDER}/") and name.endswith(".so")


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description="Adds shims to a wheel of torch_fl.")
    parser.add_argument("wheel", type=Path)
    parser.add_argument("shims", type=Path, nargs="+")
    arguments = parser.parse_args()
    add(arguments.wheel, arguments.shims)


if __name__ == "__main__":
    main()
