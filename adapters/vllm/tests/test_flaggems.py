"""FlagGems' kernels as implementations of vLLM's operators, interpreted, beside their references."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import flagos
from adapters.torch.tests.flaggems.conftest import unavailable
from flagos.cli.output import CommandError

if unavailable() is not None:
    pytest.skip(unavailable() or "", allow_module_level=True)

from flagos_serving import flaggems, verify
from torch_fl.flaggems import package, table_file, tables
from vllm_flagos import kernels
from vllm_flagos.cli import registered
from vllm_flagos.kernels.flaggems import FLAGGEMS
from vllm_flagos.operators import fused_experts

kernels.declare()
assert fused_experts
verdicts = FLAGGEMS.verdicts


def told(_: str, __: Any) -> None:
    """Nobody listens to the steps."""


def named(op: str) -> str:
    """FlagGems' implementation of an operator."""
    return f"flaggems.{op.partition('::')[2]}"


@pytest.mark.parametrize("op", FLAGGEMS.serves)
def test_its_verdict_by_the_interpreter(op: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first cases, which are small: the interpreter is slow."""
    first = 4
    kernel = FLAGGEMS.serves[op]
    if kernel == "fused_experts":  # the interpreter multiplies no matrices of bfloat16
        every, first = verify._SAMPLES[kernel], 3
        halves = (sample for sample in every() if sample[1][0].dtype == torch.float16)
        monkeypatch.setitem(verify._SAMPLES, kernel, lambda: halves)
    assert verify._verified(registered, first, op, told) == {"verdict": "STRICT", "cases": first}


def test_a_wrong_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    serve = flaggems.KERNELS["rms_norm"]

    def wrong(result: Tensor, *args: Any) -> None:
        serve(result, *args)
        result[-1, -1] += 1

    class Wrong:
        def implementation(self, name: str) -> Callable[..., Any]:
            given = flaggems.over_native_tensors(wrong)
            return given if name.startswith("flaggems") else operator.implementation(name)

    operator = FLAGGEMS.offered["_C::rms_norm"]
    monkeypatch.setitem(FLAGGEMS.offered, "_C::rms_norm", Wrong())  # type: ignore[arg-type]
    found = verify._verified(registered, 4, "_C::rms_norm", told)
    assert found["verdict"] == "FAILED" and found["cases"] == 1
    assert "bfloat16 [1, 64]" in found["first"]


@pytest.mark.parametrize("op", ["_C::fused_add_rms_norm", "_C::rotary_embedding"])
def test_routed_calls_of_vllm_write_to_their_arguments(op: str) -> None:
    """Through torch's dispatcher, as vLLM calls them, into parts of a larger tensor."""
    flagos.reset_counters()
    kernel = FLAGGEMS.serves[op]
    name, args = next(verify.samples(kernel))
    expected = verify._results(kernel, FLAGGEMS.offered[op].implementation(named(op)), args)
    space, plain = op.split("::")
    with flagos.route({op: "flaggems"}), flagos.strict():
        found = verify._results(kernel, getattr(getattr(torch.ops, space), plain), args)
    assert all(map(torch.equal, found, expected)), name
    assert any(
        not torch.equal(a, b) for a, b in zip(found, filter(torch.is_tensor, args), strict=True)
    )
    assert flagos.counters()[op] == {"calls": 1, "fallbacks": 0}


def test_what_its_kernel_would_get_wrong_goes_to_another() -> None:
    x, residual = (torch.ones(2, 16, device="flagos")[:, ::2] for _ in range(2))
    weight = torch.ones(8, device="flagos")
    flagos.reset_counters()
    with flagos.route({"_C::fused_add_rms_norm": ["flaggems", "reference"]}):
        torch.ops._C.fused_add_rms_norm(x, residual, weight, 0.0)
    assert residual.tolist() == [[2.0] * 8] * 2 and x.tolist() == [[1.0] * 8] * 2
    assert flagos.counters()["_C::fused_add_rms_norm"] == {"calls": 1, "fallbacks": 1}


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Writes a table of verdicts for this machine."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def write(**entries: dict[str, Any]) -> None:
        table_file.write(verdicts.path(), tables.table({f"_C::{k}": v for k, v in entries.items()}))
        vars(verdicts).pop("known", None)

    vars(verdicts).pop("known", None)
    yield write
    vars(verdicts).pop("known", None)


STRICT = {"verdict": "STRICT", "cases": 4}
BASIC = {"verdict": "BASIC", "cases": 4, "first": "bfloat16 [1, 64]: they differ"}
FAILED = {"verdict": "FAILED", "cases": 1, "first": "bfloat16 [1, 64]: they differ much"}
POLICIES = {
    ("off", "STRICT"): "other kernels serve by default",
    ("verified", "STRICT"): None,
    ("verify-on-use", "STRICT"): None,
    ("auto", "STRICT"): "its speed beside the other kernels is not measured",
    ("all", "STRICT"): None,
    ("verified", "BASIC"): "verified BASIC on .*: bfloat16 .1, 64.: they differ",
    ("verified", "FAILED"): "verified to be wrong on .*: .* they differ much",
    ("all", "FAILED"): "verified to be wrong on",
    ("verified", "none"): "not verified on .*: run `flagos vllm verify`",
    ("all", "none"): None,
}


@pytest.mark.parametrize(("given", "reason"), POLICIES.items())
def test_verdicts_decide_what_serves(
    table: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    given: tuple[str, str],
    reason: str | None,
) -> None:
    policy, verdict = given
    entries = {"STRICT": STRICT, "BASIC": BASIC, "FAILED": FAILED}
    table(**({"rms_norm": entries[verdict]} if verdict in entries else {}))
    monkeypatch.setenv("FLAGOS_FLAGGEMS", policy)
    found = verdicts.not_by_default("_C::rms_norm")
    assert found == reason or (reason and found and re.search(reason, found))


def test_a_broken_table_is_told(table: Callable[..., None]) -> None:
    table(rms_norm={"verdict": "FINE"})
    with pytest.warns(RuntimeWarning, match="run `flagos vllm verify`"):
        assert verdicts.known == {}


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from vllm_flagos.cli import run

    into = tmp_path / "table.json"
    command = ["verify", "--ops", "_C::silu*", "--cases", "2", "--out", str(into)]
    assert run(command) == 0
    assert capsys.readouterr().out == "1 STRICT\n"
    assert json.loads(into.read_text())["overloads"] == {
        "_C::silu_and_mul": {"verdict": "STRICT", "cases": 2}
    }
    assert json.loads(into.read_text())["flaggems"] == package.version()


def test_the_command_without_the_tools_names_their_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    from flagos_serving import commands
    from vllm_flagos import cli

    monkeypatch.setattr(commands, "find_spec", lambda name: None)
    with pytest.raises(CommandError, match="needs torch-fl-tools") as raised:
        cli.run(["verify"])
    assert raised.value.hint == "pip install 'flagos[tools]'"


def test_explain_says_why_it_does_not_serve() -> None:
    decision = flagos.explain("_C::silu_and_mul")
    assert decision.data["winner"] == "reference.silu_and_mul"
    assert "flaggems.silu_and_mul" in str(decision) and "route it here" in str(decision)
