"""What the gate found, in words."""

from __future__ import annotations

from torch_fl_tools.accuracy.results import MEASURES, Judged, Noise, Result
from torch_fl_tools.bisect import report as search

_FLAWS = 5


def lines(result: Result, folder: str) -> list[str]:
    """The report of a gate."""
    lines = [f"{_VERDICTS[result.verdict]}: {result.message}"]
    lines += [f"  {flaw}" for flaw in result.flaws[1:_FLAWS]]
    if len(result.flaws) > _FLAWS:
        lines.append(f"  and {len(result.flaws) - _FLAWS} more")
    lines += ["", *_table(result)] if result.judged else []
    lines += _facts(result)
    if result.search is not None:
        lines += ["", *search.lines(result.search, folder)]
    else:
        lines += [f"every run: {folder}"]
    return lines


_VERDICTS = {
    "equal": "OK",
    "within": "OK",
    "beyond": "NOT AS ACCURATE",
    "fails": "FAILS",
    "not deterministic": "CANNOT BE JUDGED",
}


def _table(result: Result) -> list[str]:
    rows = [("measure", "routed", "native's noise", "limit", "where"), *map(_row, result.judged)]
    widths = [max(map(len, column)) for column in list(zip(*rows, strict=True))[:-1]]
    return [
        "  ".join([*(c.ljust(w) for c, w in zip(cells, widths, strict=True)), last]).rstrip()
        for *cells, last in rows
    ]


def _row(one: Judged) -> tuple[str, str, str, str, str]:
    beyond = "  BEYOND" if one.beyond else ""
    return (
        MEASURES[one.measure],
        f"{one.value:.3g}",
        f"{one.noise:.3g}",
        f"{one.limit:.3g}",
        f"{one.place}{beyond}",
    )


def _facts(result: Result) -> list[str]:
    lines = [""]
    if result.outputs:
        lines.append(
            f"{result.outputs} outputs compared; the limits are of {result.multiple:g} times the noise"
        )
    if result.tokens:
        same = result.tokens - result.tokens_other
        lines.append(f"most likely tokens: {same} of {result.tokens} are native's")
    if result.score is not None:
        lines.append(f"score: {result.score['routed']:g}, native {result.score['native']:g}")
    if result.outputs_apart:
        lines.append(
            f"{result.outputs_apart} outputs not compared: tokens that the model was given before were others"
        )
    if result.nan:
        lines.append(f"{result.nan} elements are NaN on native kernels, too")
    if result.noise:
        lines.append("native's noise: " + "; ".join(map(_noise, result.noise)))
    if result.operators:
        plain = [op.removeprefix("aten::") for op in result.operators]
        lines.append(f"operators by other routes: {', '.join(plain)}")
    if result.on_native:
        plain = [op.removeprefix("aten::") for op in result.on_native]
        lines.append(f"stay native: {', '.join(plain)}")
    return lines


def _noise(one: Noise) -> str:
    if one.left_out is not None:
        return f"{one.run} left out ({one.left_out})"
    known = ("relative", "scalar", "kl_mean")
    parts = [f"{MEASURES[name]} {one.largest[name]:.2g}" for name in known if name in one.largest]
    return f"{one.run} ({', '.join(parts) or 'none'})"
