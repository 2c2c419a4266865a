"""The page's pictures as SVG. Texts are escaped here; colours are classes of the page's style (`c0`, …, `other`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markupsafe import Markup, escape

from torch_fl_tools.report.data import DeviceMemory, Implementation, Operator
from torch_fl_tools.report.quantities import duration, number, share, size

WIDTH = 960
_COLOURS = 8


def colours(implementations: Sequence[Implementation], unrouted: str) -> dict[str, str]:
    """Implementation → class, by their order."""
    routed = [one.name for one in implementations if one.name != unrouted]
    found = {name: f"c{at}" if at < _COLOURS else "other" for at, name in enumerate(routed)}
    return {**found, unrouted: "other"}


def shares(parts: Sequence[tuple[str, float]], classes: Mapping[str, str], title: str) -> Markup:
    """One bar, divided among implementations."""
    whole = sum(value for _, value in parts)
    drawn, x = [], 0.0
    for name, value in parts:
        width = WIDTH * value / whole if whole else 0.0
        if width <= 0:
            continue
        label = share(value, whole)
        drawn.append(
            f'<g><title>{escape(name)}: {label}</title><rect class="{classes[name]}" x="{x:.1f}" y="0" '
            f'width="{width:.1f}" height="28"/>'
        )
        if width > 9 * len(label):
            drawn.append(f'<text class="on" x="{x + width / 2:.1f}" y="19">{label}</text>')
        drawn.append("</g>")
        x += width
    return _svg(28, title, drawn)


def slowest(rows: Sequence[Operator], time: str, classes: Mapping[str, str], title: str) -> Markup:
    """A bar for each operator by its time, in the colour of what served most of its calls."""
    most = max((getattr(row, time) or 0 for row in rows), default=0)
    label, room, height = 300, WIDTH - 300 - 90, 24
    drawn = []
    for at, row in enumerate(rows):
        value = getattr(row, time) or 0
        width = max(room * value / most, 1.0) if most else 0.0
        by = max(row.served, key=row.served.__getitem__)
        y = at * height
        about = f"{row.op} by {by}: {duration(value)}, {number(row.calls)} calls"
        drawn.append(
            f'<g><title>{escape(about)}</title><text class="end" x="{label - 8}" y="{y + 16}">'
            f'{escape(_shortened(row.op))}</text><rect class="{classes[by]}" x="{label}" y="{y + 3}" '
            f'width="{width:.1f}" height="{height - 6}"/><text x="{label + width + 6:.1f}" y="{y + 16}">'
            f"{duration(value)}</text></g>"
        )
    return _svg(height * len(rows), title, drawn)


def memory(device: DeviceMemory, title: str) -> Markup:
    """Allocated and reserved memory over time."""
    points = device.points
    left, bottom, height, top = 80, 170, 200, 16
    last: float = max(points[-1][0], 1e-9)
    most: float = max(device.peak_reserved, *(point[2] for point in points), 1)

    def x(seconds: float) -> float:
        return left + (WIDTH - left - 10) * seconds / last

    def y(count: float) -> float:
        return bottom - (bottom - top) * count / most

    drawn = []
    for part in (0.0, 0.5, 1.0):
        level = y(most * part)
        drawn.append(
            f'<line class="grid" x1="{left}" x2="{WIDTH - 10}" y1="{level}" y2="{level}"/>'
        )
        drawn.append(f'<text class="end" x="{left - 8}" y="{level + 4}">{size(most * part)}</text>')
        anchor = "start" if part == 0 else "middle" if part < 1 else "end"
        drawn.append(
            f'<text text-anchor="{anchor}" x="{x(last * part):.1f}" y="{bottom + 20}">{last * part:.1f} s</text>'
        )
    for name, column in (("reserved", 2), ("allocated", 1)):
        line = " ".join(f"{x(point[0]):.1f},{y(point[column]):.1f}" for point in points)
        drawn.append(f'<polyline class="{name}" points="{line}"/>')
    peak = y(device.peak_allocated)
    drawn.append(
        f'<line class="peak" x1="{left}" x2="{WIDTH - 10}" y1="{peak:.1f}" y2="{peak:.1f}"/>'
    )
    return _svg(height, title, drawn)


def _shortened(text: str, most: int = 42) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _svg(height: float, title: str, drawn: Sequence[str]) -> Markup:
    return Markup(
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
        + "".join(drawn)
        + "</svg>"
    )
