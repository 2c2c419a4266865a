"""An implementation that fails: errors, fallbacks and retries."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from adapters.te.tests.test_manager import impl, manager
from python.tests.chips import example_chip
from te_fl.core import UnsupportedError, reset_global_policy, with_strict_mode
from te_fl.core.signatures import OPERATORS, writes


class Failing:
    """Fails while ``broken``, and counts its calls."""

    def __init__(self, error: Exception, result: object = "first") -> None:
        self.error, self.result, self.broken, self.calls = error, result, True, 0

    def __call__(self, *args: Any, **kwargs: Any) -> object:
        self.calls += 1
        if self.broken:
            raise self.error
        return self.result


def test_the_next_implementation_serves_and_the_first_is_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = Failing(RuntimeError("transient"))
    m = manager(impl("first", fn=first), impl("r", "reference"))
    assert [m.call("my_op"), m.call("my_op")] == ["r", "r"]
    assert first.calls == 2 and m.fallbacks == {"my_op": 2}
    first.broken = False
    assert m.call("my_op") == "first"
    out = capsys.readouterr().out
    assert out.count("Implementation 'first' failed for op 'my_op': transient") == 1
    assert "Op 'my_op' fallback to 'r' (kind=reference, vendor=None)" in out


def test_an_error_whose_text_is_always_another_is_told_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing() -> None:
        raise RuntimeError(f"at {next(numbers)}")

    numbers = iter(range(9))
    m = manager(impl("first", fn=failing), impl("r", "reference"))
    assert {m.call("my_op") for _ in range(3)} == {"r"}
    out = capsys.readouterr().out
    assert out.count("Implementation 'first' failed") == 1 and "at 0" in out


def test_strict_raises_what_was_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    error = KeyError("mine")
    m = manager(impl("first", fn=Failing(error)), impl("r", "reference"))
    with with_strict_mode(), pytest.raises(KeyError) as caught:
        m.call("my_op")
    assert caught.value is error
    monkeypatch.setenv("TE_FL_STRICT", "1")
    reset_global_policy()
    with pytest.raises(KeyError):
        m.call("my_op")
    monkeypatch.setenv("TE_FL_STRICT", "0")
    reset_global_policy()
    assert m.call("my_op") == "r"


def test_flagos_strict_mode_holds_here_too() -> None:
    import flagos

    m = manager(impl("first", fn=Failing(KeyError())), impl("r", "reference"))
    with flagos.strict(), pytest.raises(KeyError):
        m.call("my_op")
    assert m.call("my_op") == "r"


def test_alone_it_raises_its_own_error_and_of_several_the_last_is_the_cause() -> None:
    with pytest.raises(KeyError):
        manager(impl("first", fn=Failing(KeyError()))).call("my_op")
    last = ValueError("second")
    m = manager(impl("a", fn=Failing(KeyError())), impl("b", "reference", fn=Failing(last)))
    with pytest.raises(RuntimeError, match=r"All 2 implementation.*Last error: second") as caught:
        m.call("my_op")
    assert caught.value.__cause__ is last
    assert "In order: 'a': KeyError: ; 'b': ValueError: second" in str(caught.value)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_what_is_no_exception_passes(error: BaseException) -> None:
    m = manager(impl("first", fn=Failing(error)), impl("r", "reference"))  # type: ignore[arg-type]
    with pytest.raises(type(error)):
        m.call("my_op")


class AcceleratorError(RuntimeError):
    pass


@pytest.mark.parametrize(
    "error",
    [AcceleratorError("gone"), torch.OutOfMemoryError("full")],
)
def test_never_after_an_error_of_the_device(error: Exception) -> None:
    m = manager(impl("first", fn=Failing(error)), impl("r", "reference"))
    with pytest.raises(type(error)):
        m.call("my_op")
    assert m.fallbacks == {}


ON_CHIP = """
from adapters.te.tests.test_failures import Failing
from adapters.te.tests.test_manager import impl, manager

def served(error):
    called = manager(impl("first", fn=Failing(error)), impl("r", "reference"))
    try:
        return called.call("my_op")
    except RuntimeError as raised:
        return str(raised)

print("gave", served(RuntimeError("kernel 3: CHIP_ILLEGAL_ADDRESS at 0x10")))
print("gave", served(RuntimeError("CUDA error: an illegal memory access was encountered")))
"""


@pytest.mark.needs("compiler")
def test_never_after_an_error_that_means_a_lost_device_to_the_vendor(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if "FLAGOS_" not in name}
    environment |= {"FLAGOS_VENDOR": "example", "FLAGOS_VENDOR_PATH": str(example_chip(tmp_path))}
    done = subprocess.run(
        [sys.executable, "-c", ON_CHIP],
        env=environment,
        cwd=Path(__file__).resolve().parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    gave = [line for line in done.stdout.splitlines() if line.startswith("gave ")]
    assert gave == ["gave kernel 3: CHIP_ILLEGAL_ADDRESS at 0x10", "gave r"], done.stdout


def half_done(x: torch.Tensor) -> None:
    x.add_(1)
    raise RuntimeError("half done")


def whole(x: torch.Tensor) -> None:
    x.add_(10)


@pytest.mark.parametrize(
    "call", [lambda m, x: m.call("my_op", x), lambda m, x: m.call("my_op", x=x)]
)
def test_what_was_written_is_not_written_again(call) -> None:  # type: ignore[no-untyped-def]
    m = manager(impl("half", fn=half_done), impl("r", "reference", fn=whole))
    x = torch.zeros(3)
    with pytest.raises(RuntimeError, match="half done"):
        call(m, x)
    assert x.tolist() == [1, 1, 1]


def test_writing_into_a_list_of_tensors_counts_and_writing_elsewhere_does_not() -> None:
    def in_list(lists: list[list[torch.Tensor]]) -> None:
        half_done(lists[0][0])

    m = manager(impl("half", fn=in_list), impl("r", "reference"))
    with pytest.raises(RuntimeError, match="half done"):
        m.call("my_op", [[torch.zeros(2)]])

    def own_tensor(x: torch.Tensor) -> None:
        half_done(torch.zeros(3))

    m = manager(impl("half", fn=own_tensor), impl("r", "reference"))
    assert m.call("my_op", torch.zeros(2)) == "r"


def test_operators_that_write_are_not_run_again_unless_they_declined() -> None:
    lists = [[torch.zeros(2)], [torch.ones(2)]]
    arguments = (1, torch.zeros(1, dtype=torch.int32), lists, 2.0)
    op = "multi_tensor_scale"
    for error, served in [(RuntimeError("x"), False), (UnsupportedError("no"), True)]:
        m = manager(
            impl("a", op=op, fn=Failing(error), priority=500), impl("r", "reference", op=op)
        )
        # default.flagos_rs is of the same registry and comes next.
        if served:
            assert m.call(op, *arguments) is None and m.fallbacks == {op: 1}
        else:
            with pytest.raises(RuntimeError, match="x"):
                m.call(op, *arguments)


@pytest.mark.parametrize(
    ("op", "arguments", "named", "expected"),
    [
        ("rmsnorm_fwd", (1, 2, 3, None), {}, False),
        ("rmsnorm_fwd", (1, 2, 3, "out"), {}, True),
        ("rmsnorm_fwd", (1, 2, 3), {"ln_out": "out"}, True),
        ("generic_gemm", (1, False, 2, False, None), {}, False),
        ("generic_gemm", (1, False, 2, False, "D"), {}, True),
        ("gelu", (1, None), {}, False),
        ("scaled_softmax_forward", (1, 2.0), {}, False),
        ("scaled_softmax_backward", (1, 2, 2.0), {}, True),
        ("multi_tensor_adam", (), {}, True),
        ("multi_tensor_l2norm", (), {}, False),
    ],
)
def test_which_calls_write(
    op: str, arguments: tuple[Any, ...], named: dict[str, Any], expected: bool
) -> None:
    assert op in OPERATORS
    assert writes(op, arguments, named) is expected


def test_compat_stays_with_what_worked_and_only_strict_0_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TE_FL_COMPAT", "1")
    monkeypatch.setenv("TE_FL_STRICT", "1")
    reset_global_policy()
    first = Failing(RuntimeError("transient"))
    m = manager(impl("first", fn=first), impl("r", "reference"))
    assert m.call("my_op") == "r"
    first.broken = False
    assert [m.call("my_op"), m.call("my_op")] == ["r", "r"] and first.calls == 1
    m.bump_policy_epoch()
    assert m.call("my_op") == "first"
    monkeypatch.setenv("TE_FL_STRICT", "0")
    m = manager(impl("first", fn=Failing(KeyError())), impl("r", "reference"))
    with pytest.raises(KeyError):
        m.call("my_op")


def test_classes_of_an_operator_are_tried_in_turn() -> None:
    class Broken:
        pass

    class Works:
        pass

    op = "get_flash_attention_class"
    m = manager(
        impl("a", op=op, fn=lambda: Broken, priority=500),
        impl("b", op=op, fn=lambda: Works, priority=400),
    )

    def run(cls: type) -> str:
        if cls is Broken:
            raise RuntimeError("broken")
        return cls.__name__

    assert m.call_with_custom_impl(op, Broken, run) == "Works"
    assert m.call_with_custom_impl(op, Works, run) == "Works"

    def cannot() -> type:
        raise ImportError("no such library")

    # Nor does it matter that another one cannot say what its class is.
    m.registry.register_impl(impl("c", op=op, fn=cannot, priority=450))
    assert m.call_with_custom_impl(op, Broken, run) == "Works"
    with with_strict_mode(), pytest.raises(RuntimeError, match="broken"):
        m.call_with_custom_impl(op, Broken, run)


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_without_text_does_not_stop_the_next_implementation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    m = manager(impl("first", fn=Failing(Speechless())), impl("r", "reference"))
    assert m.call("my_op") == "r"
    assert "no text: its __str__ raises ValueError" in capsys.readouterr().out
    alone = manager(impl("first", fn=Failing(Speechless())), impl("r", fn=Failing(Speechless())))
    with pytest.raises(
        RuntimeError, match=r"All 2 implementation\(s\) failed .*Speechless: <no text"
    ):
        alone.call("my_op")


def test_an_error_over_an_inference_tensor_is_raised_as_it_is() -> None:
    m = manager(impl("first", fn=Failing(KeyError("mine"))), impl("r", "reference"))
    with torch.inference_mode():
        x = torch.ones(2)
    with pytest.raises(KeyError, match="mine"):  # the argument may have been written to
        m.call("my_op", x)
