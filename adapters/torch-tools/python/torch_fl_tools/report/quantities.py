"""Numbers with units, as people read them."""

from __future__ import annotations

_TIMES = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1, "ns"))
_SIZES = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))


def duration(nanoseconds: float) -> str:
    """`1.23 ms`."""
    return _with_unit(nanoseconds, _TIMES)


def size(count: float) -> str:
    """`1.5 GiB`."""
    return _with_unit(count, _SIZES)


def number(value: int) -> str:
    """`149,785`."""
    return f"{value:,}"


def share(part: float, whole: float) -> str:
    """`12.3 %`."""
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _with_unit(value: float, units: tuple[tuple[float, str], ...]) -> str:
    for factor, unit in units:
        if value >= factor or factor == 1:
            scaled = value / factor
            digits = 0 if factor == 1 or scaled >= 100 else 1 if scaled >= 10 else 2
            return f"{scaled:.{digits}f} {unit}"
    raise AssertionError("the last unit has the factor 1")
