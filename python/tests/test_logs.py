"""Records of the core reach ``logging``, from any thread, at the end, and never without bound."""

from __future__ import annotations

import pytest

from python.tests.interpreters import Interpreter

# Collects what reaches the logger `flagos`; the core warns once per operator that falls back.
PRELUDE = """
import atexit, logging, sys, threading
class Keep(logging.Handler):
    records = []
    arrived = threading.Event()
    def emit(self, record):
        self.records.append((record.name, record.levelname, record.getMessage()))
        self.arrived.set()
logger = logging.getLogger("flagos"); logger.addHandler(Keep()); logger.propagate = False
import flagos; from flagos import _core, logs; flagos.operators()
def warn(n):
    _core.register_impls("t", [f"op{i}" for i in range(n)], "x", "flagos")
    for i in range(n): _core.record_fallback(f"t::op{i}", "because")
"""


def test_a_record_arrives_while_the_main_thread_waits(interpreter: Interpreter) -> None:
    result = interpreter.program(
        PRELUDE + "threading.Thread(target=warn, args=(1,)).start()\n"
        "print(Keep.arrived.wait(60), Keep.records[0])"
    )
    assert result.status == 0, result.err
    assert "True" in result.out
    assert "'flagos.router.fallbacks', 'WARNING'" in result.out
    assert "t::op0" in result.out
    assert "because" in result.out


def test_what_still_waits_is_handed_over_at_exit(interpreter: Interpreter) -> None:
    # The handler's own exit function runs last because it is registered first.
    program = "import atexit; atexit.register(lambda: print(len(Keep.records)))\n"
    result = interpreter.program(program + PRELUDE + "warn(500)")
    assert (result.out, result.status) == ("500\n", 0), result.err


def test_the_queue_is_bounded_and_says_what_it_dropped(interpreter: Interpreter) -> None:
    # No thread but this one gets the GIL while it fills the queue.
    result = interpreter.program(
        PRELUDE + "sys.setswitchinterval(1000)\n"
        "n = 6000\n"
        "_core.disconnect_logs(); warn(n); _core.connect_logs(logs.flush)\n"
        "logs.flush()\n"
        "kept = sum('falls back' in r[2] for r in Keep.records)\n"
        "dropped = [r[2] for r in Keep.records if 'dropped' in r[2]]\n"
        "print(kept, dropped)"
    )
    assert result.out == "4096 ['1904 log records were dropped because the queue was full']\n"


def test_a_forked_child_can_log(interpreter: Interpreter) -> None:
    result = interpreter.program(
        PRELUDE + "import os, warnings\n"
        "warn(1)\n"
        "warnings.simplefilter('ignore')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    Keep.records.clear(); Keep.arrived.clear()\n"
        "    _core.register_impl('t::child', 'x', 'flagos')\n"
        "    _core.record_fallback('t::child', 'because')\n"
        "    os._exit(0 if Keep.arrived.wait(60) and 't::child' in str(Keep.records) else 7)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))"
    )
    assert result.out == "0\n", result.err


def test_a_handler_that_raises_does_no_harm(interpreter: Interpreter) -> None:
    result = interpreter.program(
        PRELUDE + "def bad(record): raise RuntimeError('handler')\n"
        "logger.handlers[0].emit = bad\n"
        "warn(3); print('alive')"
    )
    assert (result.out, result.status) == ("alive\n", 0), result.err


@pytest.mark.parametrize(("level", "shown"), [("warn", True), ("error", False), ("off", False)])
def test_flagos_log_shows_records_without_any_logging_set_up(
    interpreter: Interpreter, level: str, shown: bool
) -> None:
    program = (
        "import flagos; from flagos import _core; _core.register_impl('t::a', 'x', 'flagos')\n"
        "flagos.operators(); _core.record_fallback('t::a', 'because')"
    )
    result = interpreter.program(program, FLAGOS_LOG=level)
    assert result.status == 0, result.err
    assert ("[flagos.router.fallbacks WARNING]" in result.err) is shown


def test_a_wrong_level_is_told_and_does_not_break_the_import(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "import flagos; print(flagos.operators())", FLAGOS_LOG="lots=of=it"
    )
    assert result.out == "[]\n"
    assert "FLAGOS_LOG" in result.err
