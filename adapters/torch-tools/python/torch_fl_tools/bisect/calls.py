"""The call that differs: the operators of a cause are watched in further runs, and one call of them is kept."""

from __future__ import annotations

import json
import os
import pprint
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from flagos.processes.child import Child
from torch_fl_tools.bisect.findings import Call, Cause
from torch_fl_tools.bisect.session import Program, Session
from torch_fl_tools.bisect.state import Run, variables
from torch_fl_tools.bisect.trial import Watch

#: Every call goes through Python, and ends before the next begins.
_WATCHED = {"FLAGOS_REPLAY": "0", "CUDA_LAUNCH_BLOCKING": "1", "ASCEND_LAUNCH_BLOCKING": "1"}
#: What errors say after which the device is lost.
_LOST = re.compile("CUDA error|illegal memory access|device-side assert|vector core exception")
_SAVES = 3  # runs in which the call that does not end may turn out to be another one
_REPRO_SECONDS = 600


#: Runs whose calls are compared take longer.
_PATIENCE = 5.0


def find_all(session: Session, causes: list[Cause], tell: Callable[[str], None]) -> None:
    """Finds the call of each cause, with a line of progress for each."""
    for index, cause in enumerate(causes, 1):
        tell(f"looking for the call of cause {index}")
        cause.call = find(session, cause, f"cause {index}")


def find(session: Session, cause: Cause, name: str) -> Call:
    """Finds the call that makes the difference, and writes its repro."""
    ops, outcome = frozenset(one.op for one in cause.operators), cause.outcome
    if not any(op.startswith("aten::") for op in ops):
        return Call("none", "calls are compared of operators of torch alone")
    # A crash may depend on where memory is, which copies of arguments change: it is looked for without first.
    crashes = outcome.kind in ("signal", "timeout") or bool(_LOST.search(outcome.detail))
    worst: Call | None = None
    for compare in (False, True) if crashes else (True, False):
        run = _watch(
            session, ops, compare, None, f"{name}, calls {'compared' if compare else 'followed'}"
        )
        folder = run.folder
        found = _read(folder / "found.json")
        if found is not None and found.not_saved is None:
            kind = "differs" if found.raised is None else "raised"
            return _save_repro(session, kind, found, folder / "found.pt", name)
        open_call = found or _open(folder)
        if open_call is not None:
            return _crashed(session, ops, open_call, name)
        if compare:
            worst, saved = _read(folder / "worst.json"), folder / "worst.pt"
        if not run.outcome.fails and not crashes:
            message = (
                "the program passes where every call goes through Python, one at a time: calls that are replayed "
                "(FLAGOS_REPLAY=0 replays none), or the order of work on the device, make the difference"
            )
            return Call("replayed", message)
    if worst is not None:
        return _save_repro(session, "rounding", worst, saved, name)
    message = (
        "no call differs from the reference: look at what the program does between these calls"
    )
    return Call("none", message)


def _watch(session: Session, ops: frozenset[str], compare: bool, save: int | None, key: str) -> Run:
    return session.trial(
        key,
        ops,
        watch=Watch(ops, compare, save),
        environment=_WATCHED,
        stop=lambda folder: (folder / "found.json").exists(),
        patience=_PATIENCE if compare else 1.0,
    )


def _read(path: Path) -> Call | None:
    return Call.read(json.loads(path.read_text())) if path.exists() else None


def _open(folder: Path) -> Call | None:
    """The call that began and did not end."""
    for path in sorted(folder.glob("begun.*")):
        text = path.read_text()
        if text and not (call := Call.read(json.loads(text))).ended:
            return call
    return None


def _crashed(session: Session, ops: frozenset[str], call: Call, name: str) -> Call:
    """Run again, and write the arguments of the call before it begins."""
    for attempt in range(_SAVES):
        key = f"{name}, call {call.number} kept" + (f", again {attempt}" if attempt else "")
        folder = _watch(session, ops, False, call.number, key).folder
        saved = _read(folder / "saved.json")
        again = _read(folder / "found.json") or _open(folder)
        if saved is not None and again is not None and again.number == call.number:
            crashed = replace(saved, raised=again.raised)
            return _save_repro(session, "crashed", crashed, folder / "saved.pt", name)
        if again is None:
            break
        call = again
    message = f"call {call.call} of {call.op} did not end, but not in every run: its arguments could not be kept"
    return replace(call, kind="none", message=message)


def _save_repro(session: Session, kind: str, call: Call, saved: Path, name: str) -> Call:
    folder = session.state.folder / name.replace(" ", "-")
    folder.mkdir(exist_ok=True)
    shutil.copy(saved, folder / "repro.pt")
    repro = folder / "repro.py"
    repro.write_text(_repro(session, kind, call))
    status = _status(repro, session.check.timeout)
    return replace(call, kind=kind, repro=str(repro), repro_status=status)


def _status(repro: Path, timeout: float | None) -> int | None:
    """How the repro ends; None if it does not in time."""
    environment = {k: v for k, v in os.environ.items() if k != "FLAGOS_BISECT"}
    seconds = max(_REPRO_SECONDS, 2 * (timeout or 0))
    with (
        (repro.parent / "repro.out").open("wb") as out,
        Child(
            [sys.executable, repro], environment=environment, stdout=out, stderr=subprocess.STDOUT
        ) as child,
    ):
        ending = child.wait(seconds)
    return ending.status if ending is not None and ending.deadline is None else None


_TEXT = '''"""One call of {op}, by {impl} and by {reference}. Written by `flagos bisect`; {message}.

The arguments are in repro.pt. The status is 1 where the results differ or the call fails, 0 where they are equal, and 2
where the call cannot be made here.
"""

import os
import subprocess
import sys
import traceback
from pathlib import Path

# As in the search.
for name, value in {variables}.items():
    os.environ.setdefault(name, value)

OP, IMPL, REFERENCE = {op!r}, {impl!r}, {reference!r}
PROGRAM, ARGV = {main!r}, {argv!r}  # registers the implementation, if nothing else does
SECONDS = {seconds!r}


def main() -> int:
    import torch
    import torch_fl
    from torch_fl_tools.bisect import measure, program
    from torch_fl_tools.comparing.transfer import Transfer
    from torch_fl.python_kernels import require_operator

    saved = torch.load(Path(__file__).with_suffix(".pt"), weights_only=False)
    op = require_operator(OP)

    def call(device):
        args, kwargs = Transfer(torch.device(device)).tree((saved["args"], saved["kwargs"]))
        result = op(*args, **kwargs)
        torch.flagos.synchronize()
        return measure.flat([result, args, kwargs])

    try:
        if REFERENCE == "cpu":
            expected = call("cpu")
        else:
            with program.native(OP):
                expected = call("flagos")
        program.implementation(OP, IMPL, PROGRAM, ARGV)
    except Exception:
        traceback.print_exc()
        return 2
    with torch_fl.route({{OP: "impl:" + IMPL}}):
        actual = call("flagos")
    if len(actual) != len(expected):
        print(f"{{len(actual)}} tensors instead of {{len(expected)}}")
        return 1
    differs = False
    for index, (one, other) in enumerate(zip(expected, actual)):
        found = measure.difference(one, other, of_a_kernel=True)
        print(f"tensor {{index}}: {{found.dtype}}{{found.shape}}: {{found.reason or 'equal within tolerances'}}")
        differs |= found.differs
    return int(differs)


if __name__ == "__main__":
    if sys.argv[1:] == ["call"]:
        sys.exit(main())
    # In a process of its own, since the call may crash or hang.
    try:
        status = subprocess.run([sys.executable, __file__, "call"], timeout=SECONDS).returncode
    except subprocess.TimeoutExpired:
        print(f"the call did not end in {{SECONDS}} s")
        status = 1
    if status < 0:
        print(f"the call ended the process with signal {{-status}}")
        status = 1
    sys.exit(status)
'''


def _repro(session: Session, kind: str, call: Call) -> str:
    message = {
        "differs": "their results differ",
        "raised": "the first raises",
        "crashed": "the first does not end",
        "rounding": "their results differ most of all calls, within the tolerances of kernels",
    }[kind]
    reference = session.check.reference
    program = session.program or Program()
    return _TEXT.format(
        op=call.op,
        impl=call.impl,
        reference="cpu" if reference == "cpu" else "native",
        message=message,
        variables=pprint.pformat(variables(), width=100),
        main=program.main and os.path.abspath(program.main),
        argv=program.argv,
        seconds=_seconds(session.check.timeout),
    )


def _seconds(timeout: float | None) -> float:
    return 300.0 if timeout is None else max(30.0, timeout)
