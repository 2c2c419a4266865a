"""Over TransformerEngine's own Python, which nothing has to be built for: NVTE_PLUGIN=te_fl.

``TE_PATH`` names the folders that releases were installed into, separated like a PATH, without their native libraries:
``pip install --target DIR transformer_engine==2.20.2 onnxscript einops pydantic``. In the place of the native module is
a double, whose operators fail. Releases before 2.20.2 ask no plugin, and get the module as from TransformerEngine-FL.
"""

from __future__ import annotations

import ast
import inspect
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.te.tests.processes import run
from te_fl.operators import OPERATORS

HERE = Path(__file__).parent
TE_PATH = [Path(path) for path in os.environ.get("TE_PATH", "").split(os.pathsep) if path]
CHECKOUTS = [Path(path) for path in os.environ.get("TEFL_PATH", "").split(os.pathsep) if path]


@pytest.fixture(params=TE_PATH or [None], ids=lambda path: path.name if path else "none")
def release(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    assert (path / "transformer_engine" / "pytorch").is_dir(), f"{path} has no TransformerEngine"
    return path


def own_python(release: Path, **variables: str) -> str:
    variables = {"NVTE_PLUGIN": "te_fl", "NVTE_PROJECT_BUILDING": "1", **variables}
    return run(HERE / "real_te.py", release, **variables)


@pytest.mark.te
@pytest.mark.parametrize("prefer", ["flagos", "reference"])
def test_its_modules_optimizers_and_quantizers_agree_with_float64(
    release: Path, prefer: str
) -> None:
    out = own_python(release, TE_FL_PREFER=prefer)
    served = {"flagos": "default.flagos_rs", "reference": "reference.torch"}
    assert f"using '{served[prefer]}'" in out
    assert not any(f"using '{other}'" in out for other in set(served.values()) - {served[prefer]})
    agree = {line.split()[1] for line in out.splitlines() if line.startswith("agrees ")}
    assert agree == {
        "layernorm", "rmsnorm", "linear", "clamped_swiglu", "gelu", "rope", "fused_attention",
        "adam", "sgd", "fp8",
    }  # fmt: skip


@pytest.mark.te
def test_without_our_operators_the_native_module_is_called(release: Path) -> None:
    with pytest.raises(pytest.fail.Exception, match="of the native double was called"):
        own_python(release, TE_FL_PER_OP="layernorm_fwd=vendor:nvidia")


def calls(package: Path) -> Iterator[tuple[str, int, str, ast.Call]]:
    """Calls of native operators in TransformerEngine's modules: file, line, operator, the call."""
    for file in sorted(package.rglob("*.py")):
        if {"plugin", "jax"} & set(file.parts):
            continue
        modules, names = set(), {}
        nodes = list(ast.walk(ast.parse(file.read_text())))
        for node in nodes:
            if isinstance(node, ast.Import | ast.ImportFrom):
                module = getattr(node, "module", None) or ""
                for alias in node.names:
                    known_as = alias.asname or alias.name
                    if alias.name in ("transformer_engine_torch", "cpp_extensions"):
                        modules.add(known_as)
                    elif module.endswith(("transformer_engine_torch", "cpp_extensions")):
                        names[known_as] = alias.name
        for node in nodes:
            if not isinstance(node, ast.Call):
                continue
            function, op = node.func, None
            if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
                op = function.attr if function.value.id in modules else None
            elif isinstance(function, ast.Name):
                op = names.get(function.id)
            if op in OPERATORS:
                yield str(file.relative_to(package)), node.lineno, op, node


@pytest.mark.parametrize(
    "root",
    [
        *(pytest.param(path, marks=pytest.mark.tefl, id=path.name) for path in CHECKOUTS),
        *(
            pytest.param(path, marks=pytest.mark.te, id=path.name if path else "te")
            for path in TE_PATH or [None]
        ),
    ],
)
def test_every_call_in_its_sources_fits_our_operators(root: Path) -> None:
    found, wrong = set(), []
    for file, line, op, call in calls(root / "transformer_engine"):
        found.add(op)
        more = any(isinstance(a, ast.Starred) for a in call.args) or any(
            keyword.arg is None for keyword in call.keywords
        )
        given = [None for a in call.args if not isinstance(a, ast.Starred)]
        named = {keyword.arg: None for keyword in call.keywords if keyword.arg is not None}
        signature = inspect.signature(OPERATORS[op])
        try:
            (signature.bind_partial if more else signature.bind)(*given, **named)
        except TypeError as error:
            wrong.append(f"{file}:{line}: {op}: {error}")
    assert len(found) > 50 and not wrong, wrong


def test_the_check_of_calls_notices_an_argument_too_many(tmp_path: Path) -> None:
    package = tmp_path / "transformer_engine"
    package.mkdir()
    (package / "module.py").write_text(
        "import transformer_engine_torch as tex\nfrom transformer_engine_torch import gelu as g\n"
        "tex.swiglu(x, None, 1)\ng(x, None)\n"
    )
    found = {(line, op): len(call.args) for _, line, op, call in calls(package)}
    assert found == {(3, "swiglu"): 3, (4, "gelu"): 2}
    with pytest.raises(AssertionError, match=r"module.py:3: swiglu: too many positional"):
        test_every_call_in_its_sources_fits_our_operators(tmp_path)
