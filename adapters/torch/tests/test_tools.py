"""Without the wheel `torch-fl-tools` programs run, and what needs it names it."""

from __future__ import annotations

import textwrap
from functools import partial

import pytest

from torch_fl import tools

pytestmark = pytest.mark.host

#: As where the wheel is not installed: it contributes nothing.
WITHOUT = """
import flagos.adapters

contributions = flagos.adapters.contributions
flagos.adapters.contributions = lambda group: [
    each for each in contributions(group) if each.distribution != "torch-fl-tools"
]
"""
FIX = "needs torch-fl-tools, which is not installed: pip install torch-fl-tools"


@pytest.fixture
def without(run_python):
    def run(program, **variables):
        return partial(run_python, fresh=True)(WITHOUT + textwrap.dedent(program), **variables)

    return run


def test_a_program_needs_no_tools(without):
    program = """
    import sys
    import torch
    print(torch.ones(2, device="flagos").sum().item(), hasattr(torch.flagos, "record"))
    assert not [name for name in sys.modules if name.startswith("torch_fl_tools")]
    """
    assert without(program).stdout.split() == ["2.0", "False"]


@pytest.mark.parametrize("variable", [*tools.VARIABLES.values(), "FLAGOS_FLAGGEMS"])
def test_what_a_variable_asks_for_names_the_wheel(variable, without, tmp_path):
    value = "verify-on-use" if variable == "FLAGOS_FLAGGEMS" else str(tmp_path)
    program = """
    import torch
    try:
        import torch_fl
    except ImportError as error:
        print(error)
    """
    ran = without(program, **{variable: value})
    assert ran.stdout.strip() == f"{variable}={value} {FIX}"
    assert "the flagos device was not registered" in ran.stderr


def test_recording_names_the_wheel(without):
    program = """
    import torch
    try:
        torch.flagos.record
    except AttributeError as error:
        print(error)
    """
    assert without(program).stdout.strip() == f"torch.flagos.record {FIX}"


def test_each_tool_is_contributed(run_python):
    program = """
    from torch_fl import tools
    for name in [*tools.VARIABLES, "recording", "verify-on-use"]:
        assert callable(tools.load(name, "a test")), name
    """
    run_python(program)
