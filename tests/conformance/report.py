"""Rendering a summary for the terminal and as a document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from .databases import DATABASES, ON_REQUEST
from .expectations import Expectations
from .verdicts import Failure, Summary

_MOST_FALLBACKS = 25  # the JSON has all

_TITLES = {
    "op": "OpInfos",
    "module": "ModuleInfos",
    "optim": "OptimizerInfos",
    "foreach": "foreach",
    "compiled": "compiled OpInfos",
}


def _share(passed: int, total: int) -> str:
    return f"{passed}/{total} ({100 * passed / total:.2f} %)" if total else "0/0"


def _mismatch_text(failure: Failure, limit: int = 400) -> str:
    text = "; ".join(f"{kind}: {message}" for kind, message in failure.mismatches)
    return text if len(text) <= limit else f"{text[:limit]}..."


def terminal(summary: Summary, seconds: float) -> str:
    """The closing lines of a run."""
    lines: list[str] = []
    for failure in summary.unexpected:
        lines.append(f"FAIL {failure.case} {failure.variant} sample {failure.sample}")
        lines.append(f"     inputs: {failure.inputs}")
        lines.append(f"     {_mismatch_text(failure)}")
    for text in summary.ungenerated:
        lines.append(f"NOT GENERATED {text}")
    for text in summary.stale:
        lines.append(f"STALE {text}")
    kinds = Counter(kind for failure in summary.unexpected for kind in failure.kinds)
    lines.append("")
    for database in (*DATABASES, *ON_REQUEST):
        if not summary.total[database]:
            continue
        title = _TITLES[database]
        single = _share(summary.float32_passed[database], summary.float32_total[database])
        every = _share(summary.passed[database], summary.total[database])
        lines.append(f"{title + ' (float32)':26} {single}")
        lines.append(f"{title + ' x dtype':26} {every}")
    lines.append(f"{'samples compared':26} {summary.samples - summary.reference_raised}")
    lines.append(f"{'samples both must refuse':26} {summary.reference_raised}")
    lines.append(f"{'generators that failed':26} {len(summary.ungenerated)}")
    lines.append(f"{'crashes and timeouts':26} {len(summary.crashes)}")
    lines.append(f"{'expected failures':26} {len(summary.expected)}")
    lines.append(f"{'unexpected failures':26} {len(summary.unexpected)} {dict(kinds) or ''}")
    lines.append(f"{'stale expectations':26} {len(summary.stale)}")
    lines.extend(_fallbacks(summary))
    lines.append(f"{'time':26} {seconds:.0f} s")
    return "\n".join(lines)


def _fallbacks(summary: Summary) -> Iterator[str]:
    """How often operators fell back to the CPU, or from an implementation to the next; the most frequent first."""
    total = summary.fallbacks.total()
    calls = summary.calls.total()
    yield f"{'fallbacks':26} {total} of {calls} calls, of {len(+summary.fallbacks)} operators"
    for op, count in summary.fallbacks.most_common(_MOST_FALLBACKS):
        if count:
            yield f"  {op:40} {count:8} of {summary.calls[op]}"


def markdown(
    summary: Summary,
    expectations: Expectations,
    *,
    device: str,
    reference: str,
    torch_version: str,
) -> str:
    """The checked-in report: no dates or times, so that it changes only when results do."""
    lines = [
        *_result_lines(summary, device, reference, torch_version),
        *_failure_lines("Expected failures", summary.expected),
        *_failure_lines("Unexpected failures", summary.unexpected),
        *_tolerance_lines(expectations),
        *_ungenerated_lines(summary),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _result_lines(
    summary: Summary, device: str, reference: str, torch_version: str
) -> Iterator[str]:
    yield f"# Conformance of `{device}` with `{reference}`"
    yield ""
    yield "Written by `make conformance`; do not edit. Each entry of PyTorch's test databases runs on"
    yield "both devices and must agree in values (to the bit), dtype, shape, strides, layout, device,"
    yield "aliasing, version counters, random state and errors. A pair passes only if every sample of"
    yield "every variant agrees; expected failures count as failures."
    yield ""
    yield f"PyTorch {torch_version.partition('+')[0]}. {summary.samples:,} calls, of which"
    yield f"{summary.reference_raised:,} are refused by `{reference}` and must be refused alike."
    yield f"Crashes and timeouts: {len(summary.crashes)}."
    yield ""
    yield "| database | float32 | all dtypes |"
    yield "| --- | ---: | ---: |"
    for database in DATABASES:
        if summary.total[database]:
            single = _share(summary.float32_passed[database], summary.float32_total[database])
            every = _share(summary.passed[database], summary.total[database])
            yield f"| {_TITLES[database]} | {single} | {every} |"
    yield ""
    yield "## Variants"
    yield ""
    yield "| variant | pairs passed | calls | refused by both |"
    yield "| --- | ---: | ---: | ---: |"
    for variant, counts in sorted(summary.variants.items()):
        passed = _share(counts["passed"], counts["cases"])
        yield f"| {variant} | {passed} | {counts['samples']:,} | {counts['reference_raised']:,} |"
    yield ""


def _tolerance_lines(expectations: Expectations) -> Iterator[str]:
    yield "## Compared less strictly"
    yield ""
    yield "| entries | variants | compared | why |"
    yield "| --- | --- | --- | --- |"
    for entry, tolerance in expectations.tolerances:
        names = ", ".join(f"`{name}`" for name in entry.ops)
        variants = ", ".join(entry.variants).replace("*", "all")
        how = {
            "bits": "to the bit",
            "close": f"rtol {tolerance.rtol:g}, atol {tolerance.atol:g}",
            "metadata": "all but values",
        }[tolerance.compare]
        if tolerance.ignore:
            how += f", without {', '.join(sorted(tolerance.ignore))}"
        yield f"| {entry.database} {names} | {variants} | {how} | {entry.reason} |"
    yield ""


def _ungenerated_lines(summary: Summary) -> Iterator[str]:
    if summary.ungenerated:
        yield "## Samples PyTorch could not generate"
        yield ""
        for text in sorted(summary.ungenerated):
            yield f"- {text}"
        yield ""


def _failure_lines(title: str, failures: list[Failure]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    if not failures:
        yield "None."
        yield ""
        return
    grouped: dict[tuple[str, str, str], list[Failure]] = defaultdict(list)
    for failure in failures:
        key = (failure.case.database, failure.case.name, failure.reason or "")
        grouped[key].append(failure)
    yield "| entry | dtypes | variants | why |"
    yield "| --- | --- | --- | --- |"
    for (database, name, reason), group in sorted(grouped.items()):
        dtypes = ", ".join(sorted({failure.case.dtype for failure in group}))
        variants = ", ".join(sorted({failure.variant for failure in group}))
        why = reason or _mismatch_text(group[0], 200)
        yield f"| {database} `{name}` | {dtypes} | {variants} | {why.replace('|', chr(92) + '|')} |"
    yield ""
