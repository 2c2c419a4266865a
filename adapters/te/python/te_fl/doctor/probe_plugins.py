"""Loads te_fl's plugins in a process of its own, and reports the number of operators."""

from __future__ import annotations

from flagos.processes.reports import report


def main() -> None:
    """Reports ``te_fl``, with ``error`` when a plugin fails."""
    try:
        import te_fl
        from te_fl.core import get_registry

        te_fl.register_operators()
    # A plugin may raise any exception.
    except Exception as error:
        report("te_fl", error=str(error))
        return
    report("te_fl", operators=len(get_registry().list_operators()))


if __name__ == "__main__":
    main()
