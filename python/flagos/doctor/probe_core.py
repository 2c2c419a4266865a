"""Loads ``flagos._core`` in a process of its own and reports its version and file."""

from __future__ import annotations

import time

from flagos.processes.reports import report


def main() -> None:
    """Reports version, ABI, file and the seconds the import took."""
    start = time.perf_counter()
    from flagos import _core

    seconds = time.perf_counter() - start
    report(
        "core",
        version=_core.version,
        abi_version=_core.abi_version,
        file=_core.__file__,
        seconds=seconds,
    )


if __name__ == "__main__":
    main()
