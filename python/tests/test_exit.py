"""A process ends with its own status while daemon threads are inside the module."""

from __future__ import annotations

import pytest

from python.tests.interpreters import Interpreter

# Several threads call a function until the process ends. Each keeps the interpreter's lock for moments, so that the end
# finds threads in every state.
PRELUDE = """
import sys, threading
import flagos; from flagos import _core, registration
sys.setswitchinterval(1e-5)
def hammer(call):
    started = threading.Barrier(5)
    def loop():
        call(); started.wait()
        while True: call()
    for _ in range(4): threading.Thread(target=loop, daemon=True).start()
    started.wait()
registration.register("t::op", lambda: 1, impl_id="x")
"""


@pytest.mark.parametrize(
    "call",
    [
        "flagos.counters",
        "flagos.devices",
        "flagos.plan",
        "_core.strict_override",
        "flagos.vendors",
        "lambda: flagos.explain('t::op')",
        "_core.comm_engines",
    ],
)
def test_a_thread_that_wants_the_interpreter_back_does_not_end_the_process(
    interpreter: Interpreter, call: str
) -> None:
    for _ in range(3):
        result = interpreter.program(f"{PRELUDE}hammer({call})\nsys.exit(7)")
        assert result.status == 7, result.err


@pytest.mark.parametrize(
    "call", ["declined(1)", "_core.check_lock(Slow())", "_core.find_kernels('/nowhere', Slow())"]
)
def test_a_thread_in_python_code_that_the_module_called_does_not_end_the_process(
    interpreter: Interpreter, call: str
) -> None:
    # The thread gives the lock away and wants it back inside `count`, with frames of the module beneath.
    program = f"""{PRELUDE}
def count():
    for _ in range(2000): pass
class Slow:
    def __fspath__(self): count(); return "/nowhere"
    def __len__(self): count(); return 0
    def __getitem__(self, index): count(); raise IndexError
class Declined(flagos.UnsupportedError):
    def __str__(self): count(); return "no"
def decline(x): raise Declined
def serve(x): count(); return x
registration.register("t::declined", decline, impl_id="a", priority=1)
registration.register("t::declined", serve, impl_id="b")
declined = _core.Operator("t::declined")
def attempt():
    try: {call}
    except (flagos.FlagosError, TypeError): pass
hammer(attempt)
sys.exit(7)
"""
    for _ in range(8):
        result = interpreter.program(program)
        assert result.status == 7, result.err
