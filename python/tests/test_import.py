"""Importing flagos costs nothing and brings no framework; the stub says what there is."""

from __future__ import annotations

import ast
from importlib import metadata
from pathlib import Path

import flagos
from flagos import _core
from python.tests.interpreters import Interpreter


def test_no_framework_is_imported(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "import sys, flagos\n"
        "flagos.operators(), flagos.FlagosError, flagos.route, flagos.devices\n"
        "print(sorted({'torch', 'numpy', 'typer', 'rich'} & set(sys.modules)))"
    )
    assert result.out == "[]\n", result.err


def test_the_core_imports_alone(interpreter: Interpreter) -> None:
    result = interpreter.program(
        "import sys; before = set(sys.modules); from flagos import _core\n"
        "print(sorted(m for m in set(sys.modules) - before if m.startswith('flagos')))"
    )
    assert (
        result.out == "['flagos', 'flagos._core', 'flagos._core.operator', 'flagos._core.te']\n"
    ), result.err


def test_a_typo_in_the_configuration_does_not_break_the_import(interpreter: Interpreter) -> None:
    program = "import flagos; print(flagos.operators())"
    result = interpreter.program(program, FLAGOS_NONSENSE="1", FLAGOS_STRICT="perhaps")
    assert result.out == "[]\n", result.err


def test_every_public_name_exists() -> None:
    for name in flagos.__all__:
        assert getattr(flagos, name) is not None
    assert set(flagos.__all__) <= set(dir(flagos))


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(flagos, "nonsense")


def test_the_stub_describes_the_module() -> None:
    stub = ast.parse(Path(_core.__file__).with_name("_core.pyi").read_text(encoding="utf-8"))
    declared = set()
    for node in stub.body:
        if isinstance(node, ast.FunctionDef):
            declared.add(node.name)
        elif isinstance(node, ast.ClassDef):
            # The types of plain data, and of submodules, exist for type checkers only.
            plain = [ast.unparse(base) for base in node.bases] == ["TypedDict"]
            if not plain and not node.name.startswith("_"):
                declared.add(node.name)
        elif isinstance(node, ast.AnnAssign) and not ast.unparse(node.target).startswith("__"):
            declared.add(ast.unparse(node.target))
    # Submodules of adapters are described by the adapters.
    adapters = {"te"}
    assert declared == {name for name in dir(_core) if not name.startswith("__")} - adapters


def test_extras_pin_the_adapters_to_this_version() -> None:
    requirements = [r for r in metadata.requires("flagos") or [] if "extra ==" in r]
    assert {r.split(";")[0].strip() for r in requirements} == {
        f"{distribution}=={flagos.__version__}"
        for distribution in (
            *("flagos-ascend", "flagos-metax"),
            *(
                "lightx2v-fl",
                "te-fl",
                "torch-fl",
                "torch-fl-tools",
                "vllm-flagos",
                "sglang-flagos",
                "flagos-trainers",
            ),
        )
    }
    assert metadata.version("flagos") == flagos.__version__
