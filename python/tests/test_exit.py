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
