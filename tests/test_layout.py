"""Dependencies point one way: adapters → the flagos wheel → the core.

Checked over Cargo's own metadata, over the paths that the core's Rust modules name, over what Python
modules import and name, and over what importing the Python packages really loads.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.rust_modules import OWN, Crate, Module, circle, crates, without_comments

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core" / "src"

# Which crates of the workspace a crate may be built from. Two modules of Python that both contain the core would mean
# two registries in one process, so only flagos-py, which is nothing but that, links it, with what Python sees of it,
# the vendor cuda, and the Rust of adapters. A chip is a library behind a C table, of which no other crate is built.
CHIPS = ("flagos-ascend", "flagos-metax")
VENDORS = ("flagos-cuda", *CHIPS)
CRATES: dict[str, set[str]] = {
    "flagos-core": set(),
    "flagos-example-chip": set(),
    "flagos-exported-host": {"flagos-core", "flagos-vendor-kit"},
    "flagos-vendor-kit": {"flagos-core"},
    **{vendor: {"flagos-core", "flagos-vendor-kit"} for vendor in VENDORS},
    "flagos-exported-cuda": {"flagos-core", "flagos-vendor-kit", "flagos-cuda"},
    "flagos-cudalib": {"flagos-core", "flagos-vendor-kit", "flagos-cuda"},
    "flagos-comm": set(),
    "flagos-bindings": {"flagos-core", "flagos-vendor-kit", "flagos-comm"},
    "te-fl": {"flagos-core", "flagos-bindings"},
    "flagos-py": {"flagos-bindings", "te-fl", "flagos-cuda"},
    "torch-fl": set(),
}

# Which modules of the core a module may name. The registry knows no policy, the router ties them; these do not know
# the runtime, and the runtime does not know them; only the C table sees everything.
FOUNDATION = {"descriptions", "env", "error", "nearest", "trusted", "Error", "ErrorKind", "Result"}
CORE_MODULES: dict[str, set[str]] = {
    "error": set(),
    "nearest": set(),
    "trusted": set(),
    "descriptions": FOUNDATION,
    "env": FOUNDATION,
    "registry": FOUNDATION,
    "policy": FOUNDATION | {"registry"},
    "router": FOUNDATION | {"registry", "policy"},
    "runtime": FOUNDATION,
    "vendors": FOUNDATION | {"runtime"},
    "kernels": FOUNDATION | {"registry", "policy", "router", "runtime", "vendors"},
    "abi": FOUNDATION | {"registry", "policy", "router", "runtime", "vendors", "kernels"},
}

ADAPTERS = sorted(path.parent for path in (ROOT / "adapters").glob("*/pyproject.toml"))
ADAPTER_PACKAGES = {
    path.parent.name for adapter in ADAPTERS for path in adapter.glob("python/*/__init__.py")
}
FRAMEWORKS = {"torch", "transformer_engine", "transformers", "numpy", "triton", "flag_gems"}
FRAMEWORK_CRATES = {"pyo3", "pyo3-ffi", "tch", "torch-sys", "cxx", "numpy"}


def cargo_packages() -> dict[str, set[str]]:
    """Name of each crate of the workspace → names of its non-development dependencies."""
    if shutil.which("cargo") is None:
        pytest.skip("cargo is not installed")
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--offline"]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {
        package["name"]: {
            dependency["name"]
            for dependency in package["dependencies"]
            if dependency["kind"] != "dev"
        }
        for package in json.loads(output)["packages"]
    }


def test_crates_depend_downwards_only() -> None:
    packages = cargo_packages()
    assert packages.keys() == CRATES.keys(), "a new crate belongs into CRATES of this test"
    for name, dependencies in packages.items():
        assert dependencies & CRATES.keys() <= CRATES[name], name


def test_the_core_knows_no_framework() -> None:
    for crate in ("flagos-core", "flagos-comm"):
        assert not cargo_packages()[crate] & FRAMEWORK_CRATES


def named_modules(source: str) -> set[str]:
    """First path segments after `crate::` in Rust source, in plain paths and in groups."""
    source = without_comments(source)
    names = set(re.findall(r"\bcrate::(\w+)", source))
    for group in re.findall(r"\bcrate::\{((?:[^{}]|\{[^{}]*\})*)\}", source):
        names |= set(re.findall(r"(?:^|,)\s*(\w+)", re.sub(r"\{[^{}]*\}", "", group)))
    return names


def core_sources(module: str) -> list[Path]:
    """The files of one top-level module of the core, its tests aside."""
    single = CORE / f"{module}.rs"
    files = [*([single] if single.exists() else []), *sorted((CORE / module).rglob("*.rs"))]
    return [
        file
        for file in files
        if not file.stem.endswith("tests") and "tests" not in file.relative_to(CORE).parts
    ]


def test_every_core_module_is_judged() -> None:
    declared = set(re.findall(r"\bmod (\w+);", without_comments((CORE / "lib.rs").read_text())))
    assert declared == CORE_MODULES.keys(), "a new module belongs into CORE_MODULES of this test"


@pytest.mark.parametrize("module", CORE_MODULES)
def test_core_modules_name_only_what_lies_below(module: str) -> None:
    sources = core_sources(module)
    assert sources
    above = {
        f"{path.relative_to(ROOT)}: crate::{name}"
        for path in sources
        for name in named_modules(path.read_text())
        if name != module and name not in CORE_MODULES[module]
    }
    assert above == set()


def test_rust_modules_of_a_folder_do_not_need_each_other() -> None:
    found = {
        str(home.joinpath(*folder).relative_to(ROOT)): names
        for home, crate in crates(ROOT).items()
        for folder, names in crate.circles().items()
    }
    assert found == {}


def test_every_rust_file_is_judged() -> None:
    judged = {name for crate in crates(ROOT).values() for name in crate.code}
    for module in (("router", "publish"), ("shm", "member"), ("operator", "call"), ("build",)):
        assert module in judged


def test_a_circle_is_found() -> None:
    assert circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert circle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


CIRCLES = {
    "siblings": ({("a",): "use super::b::B;", ("b",): "use super::a;"}, {(): ["a", "b", "a"]}),
    "paths in code": (
        {("a",): "fn f() { super::b::g() }", ("b",): "fn g() { crate::a::f() }"},
        {(): ["a", "b", "a"]},
    ),
    "a folder is one module": (
        {("a",): "mod x;", ("a", "x"): "use crate::{c, b::{B, C}};", ("b",): "use crate::a::A;"},
        {(): ["a", "b", "a"]},
    ),
    "in a folder": (
        {("f",): "", ("f", "a"): "use super::b::B;", ("f", "b"): "use super::a::A;"},
        {("f",): ["a", "b", "a"]},
    ),
    "by a name passed on": (
        {(): "mod a; pub use a::A;", ("a",): "use crate::b::B;", ("b",): "use crate::A;"},
        {(): ["a", "b", "a"]},
    ),
    "a folder's own code": (
        {("f",): "mod a; use a::A; struct B;", ("f", "a"): "use super::B;"},
        {("f",): ["a", OWN, "a"]},
    ),
    "names passed on are no need": (
        {("f",): "mod a; pub use a::A; pub struct B;", ("f", "a"): "use super::B;"},
        {},
    ),
    "tests may name anything": (
        {
            ("a",): "use super::b;",
            ("b",): "fn f() {}\n#[cfg(test)]\nmod tests { use crate::a; }",
        },
        {},
    ),
    "documentation may link anything": (
        {("a",): "use super::b;", ("b",): "/// See [`crate::a`].\nfn f() {}"},
        {},
    ),
}


@pytest.mark.parametrize(("sources", "circles"), CIRCLES.values(), ids=CIRCLES)
def test_circles_of_rust_modules_are_found(
    sources: dict[Module, str], circles: dict[Module, list[str]]
) -> None:
    assert Crate(sources).circles() == circles


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("use crate::runtime::Stream;", {"runtime"}),
        ("use crate::{error::Error, runtime::{a, b}, env};", {"error", "runtime", "env"}),
        ("/// [`crate::runtime`]\nfn f() { crate::policy::g() } // crate::abi", {"policy"}),
    ],
)
def test_paths_are_found_in_rust_source(source: str, names: set[str]) -> None:
    """The check above sees every way in which a module can name another one."""
    assert named_modules(source) == names


FLAGOS = ROOT / "python" / "flagos"


def named_packages(source: str) -> set[str]:
    """Top-level packages that Python source imports, or names in a text that could be imported."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.update(re.findall(r"^([A-Za-z_]\w*)(?:[.:][\w.:]+)?$", node.value))
    return {name.partition(".")[0] for name in names}


def test_the_flagos_package_knows_no_adapter_and_no_framework() -> None:
    sources = sorted(FLAGOS.rglob("*.py"))
    assert sources and {"torch_fl", "te_fl", "lightx2v_fl"} <= ADAPTER_PACKAGES
    adapters = re.compile("|".join(name.replace("_", "[-_]") for name in sorted(ADAPTER_PACKAGES)))
    for path in sources:
        source = path.read_text()
        assert not named_packages(source) & (FRAMEWORKS | ADAPTER_PACKAGES), path
        assert not adapters.search(source), path


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("def f():\n    import torch.nn", {"torch"}),
        ("from te_fl.core import x", {"te_fl"}),
        ("find_spec('torch'); run('torch_fl.bench:main')", {"torch", "torch_fl"}),
        ("'imports torch'", set()),
    ],
)
def test_packages_are_found_in_python_source(source: str, names: set[str]) -> None:
    """The check above sees every way in which a module can name a package."""
    assert named_packages(source) == names


def declared(adapter: Path) -> dict[str, Any]:
    """The table `project` of an adapter's pyproject.toml."""
    toml = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    project: dict[str, Any] = toml.loads((adapter / "pyproject.toml").read_text())["project"]
    return project


def test_the_catalogue_of_adapters_says_what_they_declare() -> None:
    """`flagos` tells by this file, which is data, what to install for an adapter that is missing."""
    catalogue = json.loads((FLAGOS / "data" / "adapters.json").read_text())
    commands, namespaces = {}, {}
    for adapter in ADAPTERS:
        project = declared(adapter)
        if "entry-points" not in project:  # what adapters share: it comes with them
            continue
        entries = project["entry-points"]
        namespaces[project["name"]] = next(iter(entries.get("flagos.operators", ())), None)
        for command in entries.get("flagos.commands", ()):
            commands[command] = project["name"]
    published = {entry["extra"]: entry for entry in catalogue["adapters"]}
    assert namespaces == {
        entry["distribution"]: entry["namespace"] for entry in catalogue["adapters"]
    }
    assert commands == {
        name: published[entry["extra"]]["distribution"]
        for name, entry in catalogue["commands"].items()
    }
    extras = declared(ROOT / "python")["optional-dependencies"]
    assert extras.keys() == published.keys() | CHIP_FOLDERS.keys()
    for extra, (requirement,) in extras.items():
        distribution = published.get(extra, {"distribution": f"flagos-{extra}"})["distribution"]
        assert requirement.partition("==")[0] == distribution


CHIP_FOLDERS = {
    path.parent.name: path.parent for path in (ROOT / "core/vendors").glob("*/pyproject.toml")
}


def test_a_chip_is_a_wheel_with_a_library_and_its_manifest() -> None:
    toml = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    header = (ROOT / "core/include/flagos_vendor.h").read_text()
    version = [re.search(rf"_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR")]  # type: ignore[index]
    wheels = (CORE / "descriptions" / "wheels.rs").read_text()
    assert {f"flagos-{name}" for name in CHIP_FOLDERS} == set(CHIPS)
    for name, folder in CHIP_FOLDERS.items():
        project = declared(folder)
        package = project["name"].replace("-", "_")
        assert project["name"] == f"flagos-{name}"
        assert project["entry-points"]["flagos.vendors"] == {name: package}
        manifest = toml.loads((folder / "python" / package / f"{name}.toml").read_text())
        assert (manifest["name"], manifest["library"]) == (name, f"lib{package}.so")
        assert manifest["interface"] == ".".join(version)
        # What the core knows of a chip whose wheel is missing.
        assert f'vendor: "{name}"' in wheels
        for files in manifest["device_files"]:
            assert f'device_files: "{files}"' in wheels


# Which packages of adapters a package may import besides its own and `flagos`. The tools around torch_fl are above it.
IMPORTS: dict[str, set[str]] = {
    "flagos_serving": {"torch_fl", "torch_fl_tools"},
    "flagos_trainers": {"torch_fl"},
    "lightx2v_fl": {"torch_fl"},
    "sglang_flagos": {"flagos_serving", "torch_fl"},
    "te_fl": set(),
    "torch_fl": set(),
    "torch_fl_cli": {"torch_fl"},
    "torch_fl_tools": {"torch_fl"},
    "vllm_flagos": {"flagos_serving", "torch_fl"},
}


def test_packages_of_adapters_name_only_those_below() -> None:
    assert IMPORTS.keys() == ADAPTER_PACKAGES, "a new package belongs into IMPORTS of this test"
    above = {
        f"{path.relative_to(ROOT)}: {name}"
        for adapter in ADAPTERS
        for path in sorted(adapter.glob("python/**/*.py"))
        for name in named_packages(path.read_text()) & ADAPTER_PACKAGES
        if name not in IMPORTS[own := path.relative_to(adapter).parts[1]] | {own}
    }
    assert above == set()


def test_a_chips_package_names_torch_fl_and_only_its_entry_points_name_it() -> None:
    chips = {chip.replace("-", "_") for chip in CHIPS}
    trees = [*ADAPTERS, *CHIP_FOLDERS.values(), ROOT / "python"]
    sources = {path: path.read_text() for tree in trees for path in tree.glob("**/*.py")}
    sources = {path: text for path, text in sources.items() if "tests" not in path.parts}
    assert any("torch_fl" in named_packages(text) for text in sources.values())
    above = {
        f"{path.relative_to(ROOT)}: {name}"
        for path, text in sources.items()
        for name in named_packages(text)
        if (name in chips and name not in path.parts)
        or (name in ADAPTER_PACKAGES - {"torch_fl"} and chips & {*path.parts})
    }
    assert above == set()


PACKAGES = [
    path.parent
    for path in (
        FLAGOS / "__init__.py",
        *sorted((ROOT / "adapters").glob("*/python/*/__init__.py")),
        *sorted((ROOT / "core/vendors").glob("*/python/*/__init__.py")),
    )
]


def without_types(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below one, but for those that only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING")):
            yield child
            yield from without_types(child)


def imported(source: str, modules: Collection[str]) -> Iterator[str]:
    """Those of `modules` that Python source imports, in functions too, or names in a text."""
    for node in without_types(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in modules else node.module for name in whole]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [text for argument in node.args if (text := text_of(argument))]
        elif "." in text_of(node):
            names = [text_of(node)]
        yield from (name for name in names if name in modules)


def text_of(node: ast.AST) -> str:
    """What a constant of type text says; nothing for every other node."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def folders(package: Path) -> dict[str, dict[str, set[str]]]:
    """Each folder of a Python package → its files and folders → those beside them that they import from."""
    files = {}
    for file in (*package.rglob("*.py"), *package.rglob("*.pyi")):
        place = (package.name, *file.relative_to(package).with_suffix("").parts)
        files[".".join(place[:-1] if place[-1] == "__init__" else place)] = (file, place)
    found: dict[str, dict[str, set[str]]] = {}
    for file, place in files.values():
        # The stub of a native module stands for the module, and imports for type checkers alone.
        targets = imported(file.read_text(), files.keys()) if file.suffix == ".py" else ()
        for other in {files[target][1] for target in targets} - {place}:
            # Where the ways to both part.
            pairs = enumerate(zip(place, other, strict=False))
            depth = next(i for i, (a, b) in pairs if a != b)
            named = found.setdefault(".".join(place[:depth]), {})
            named.setdefault(place[depth], set()).add(other[depth])
            named.setdefault(other[depth], set())
    return found


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_python_modules_of_a_folder_do_not_need_each_other(package: Path) -> None:
    found = folders(package)
    assert found or len(list(package.rglob("*.py"))) < 3
    assert {folder: way for folder, named in found.items() if (way := circle(named))} == {}


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"a": "from p import b", "b": ""}, {}),
        ({"a": "from p import b", "b": "def f():\n    import p.a"}, {"p": ["a", "b", "a"]}),
        ({"a": "from p.q import c", "q/c": "import_module('p.a')"}, {"p": ["a", "q", "a"]}),
        ({"a": "T = {'x': 'p.b'}", "b": "from p.a import T"}, {"p": ["a", "b", "a"]}),
        ({"q/__init__": "from p.q.c import x", "q/c": "from p.q import y"}, {"p.q": ["__init__", "c", "__init__"]}),
        ({"a": "if TYPE_CHECKING:\n    from p import b", "b": "from p import a"}, {}),
    ],
)  # fmt: skip
def test_circles_are_found_in_python_packages(
    tmp_path: Path, files: dict[str, str], found: dict[str, list[str]]
) -> None:
    """The check above sees every way in which a module can import another one."""
    for name, source in {"__init__": "", "q/__init__": "", **files}.items():
        file = tmp_path / "p" / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source)
    named = folders(tmp_path / "p")
    assert {folder: way for folder, each in named.items() if (way := circle(each))} == found


def test_importing_flagos_loads_no_framework() -> None:
    if find_spec("flagos") is None:
        pytest.skip("the flagos wheel is not installed")
    program = f"""
import pkgutil, sys
import flagos
for module in pkgutil.walk_packages(flagos.__path__, "flagos."):
    if not module.name.endswith("__main__"):
        __import__(module.name)
print(",".join(sorted({FRAMEWORKS | ADAPTER_PACKAGES!r} & sys.modules.keys())))
"""
    command = [sys.executable, "-c", program]
    output = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/").stdout
    assert output.strip() == ""


def test_the_words_of_the_architecture_have_places() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text().split("## Words")[1]
    rows = re.findall(r"^\| ([a-z][^|]*) \| [^|]+ \| (`[^|]+`) \|$", text, re.MULTILINE)
    places = {
        word: [ROOT / place for place in re.findall("`([^`]+)`", cell)] for word, cell in rows
    }
    assert {"plan", "twin", "engine", "launch plan"} <= places.keys()
    assert [word for word, paths in places.items() if not all(p.exists() for p in paths)] == []


# The rooms of the torch shim, each with the other rooms that its files may include. Files in no room (the registration,
# the library, the benchmark) lie above all of them, `shim.h` below.
SHIM = ROOT / "adapters" / "torch" / "csrc"
SHIM_ROOMS: dict[str, set[str]] = {
    "runtime": set(),
    "following": {"runtime"},
    "aten": {"runtime", "following"},
    "python_kernels": {"runtime", "following", "aten"},
    "host": {"runtime", "aten"},
    "cuda": {"runtime", "aten"},
    "vendor_library": {"runtime", "aten"},
    "distributed": {"runtime"},
}


def shim_includes() -> dict[str, set[str]]:
    """The shim's files, as `room/name` → those they include. A header and its source are one file."""
    files = {path.relative_to(SHIM).with_suffix("") for path in SHIM.rglob("*.[ch]*")}
    included: dict[str, set[str]] = {str(file): set() for file in files}
    for path in SHIM.rglob("*.[ch]*"):
        name = str(path.relative_to(SHIM).with_suffix(""))
        for header in re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE):
            if (SHIM / header).exists() and (other := header.removesuffix(".h")) != name:
                included[name].add(other)
    return included


def operators_named(text: str) -> list[str]:
    """Operators of torch that C++ names in a string. A namespace alone, `aten::`, is none."""
    return re.findall(r'"((?:aten|quantized)::\w[^"]*)"', text)


def test_operators_are_named_in_the_table_of_traits_alone() -> None:
    assert operators_named('name == "aten::mm" || name.rfind("aten::", 0)') == ["aten::mm"]
    named = {
        str(path.relative_to(SHIM)): operators_named(path.read_text())
        for path in SHIM.rglob("*.[ch]*")
    }
    assert len(named["aten/traits.h"]) > 100
    assert [file for file, names in named.items() if names] == ["aten/traits.h"]


def test_rooms_of_the_torch_shim_include_only_what_lies_below() -> None:
    included = shim_includes()
    rooms = {name.split("/")[0] for name in included if "/" in name}
    assert rooms == SHIM_ROOMS.keys(), "a new room belongs into SHIM_ROOMS of this test"
    above = {
        f"{name} includes {other}"
        for name, others in included.items()
        if (room := name.split("/")[0]) in SHIM_ROOMS
        for other in others
        if other not in ("shim", "torch_version")
        and other.split("/")[0] not in SHIM_ROOMS[room] | {room}
    }
    assert above == set()
    assert circle(included) == []
