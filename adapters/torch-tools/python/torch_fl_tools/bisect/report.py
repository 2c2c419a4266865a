"""The result of a search in words."""

from __future__ import annotations

from torch_fl_tools.bisect.findings import Call, Result

_STACK = 4


def lines(result: Result, folder: str) -> list[str]:
    """The report of a search."""
    if result.verdict != "found":
        return [f"{result.message} ({_runs(result.runs)})"]
    one = "makes" if _single(result) else "make"
    lines = [
        f"{sum(len(c.operators) for c in result.causes)} of {result.operators} operators {one} the difference, "
        f"found in {_runs(result.runs)}"
    ]
    for index, cause in enumerate(result.causes, 1):
        together = " and ".join(f"{each.op} by {each.impl}" for each in cause.operators)
        only = ", only together" if len(cause.operators) > 1 else ""
        lines += ["", f"{index}. {together}{only}", f"   {cause.outcome.detail}"]
        lines += [f"   {line}" for line in _call(cause.call)]
    ops = [each.op for cause in result.causes for each in cause.operators[:1]]
    lines += ["", f"without: {' '.join(f'{variable(op)}=vendor' for op in ops)}"]
    lines += [f"every run: {folder}"]
    return lines


def variable(op: str) -> str:
    """The variable that routes an operator."""
    return "FLAGOS_OP_" + op.removeprefix("aten::").replace("::", "__").replace(".", "__")


def _single(result: Result) -> bool:
    return sum(len(cause.operators) for cause in result.causes) == 1


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _call(call: Call | None) -> list[str]:
    if call is None:
        return []
    if call.arguments is None:
        return [call.message or ""]
    which = f"call {call.call} of {call.op}, counted from 0"
    heading = {
        "differs": f"first call that differs: {which}",
        "raised": f"first call that raises: {which}: {call.raised}",
        "crashed": f"the call that does not end: {which}"
        + (f": {call.raised}" if call.raised is not None else ""),
        "rounding": f"no call differs by more than kernels may; most does {which}",
    }[call.kind]
    lines = [heading, *(f"  {argument}" for argument in call.arguments)]
    for one in call.differences or []:
        if one.differs or call.kind == "rounding":
            reason = one.reason or f"max |Δ| {one.max_abs:.6g}, relative {one.max_rel:.3g}"
            lines.append(f"  {one.of}: {reason}")
    stack = call.stack or []
    place = [line for line in stack if "/torch/" not in line] or stack
    if call.gradient_of is not None:
        lines.append(f"  in the backward pass, in {call.gradient_of}")
        forward = [line for line in call.forward_stack or [] if "/torch/" not in line]
        place = forward or place
    lines += [f"  from {line}" for line in place[-_STACK:]]
    ended = {
        0: "alone it does not show it: status 0",
        1: "run, shows it: status 1",
        None: "run, did not end",
    }
    status = call.repro_status
    lines.append(f"repro: {call.repro} ({ended.get(status, f'could not be run: status {status}')})")
    return lines
