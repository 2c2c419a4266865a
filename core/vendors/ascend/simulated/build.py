"""Builds the simulated libascendcl.so, libnnopbase.so, libopapi.so, libhccl.so and libflagcx.so into one folder.

`python -m core.vendors.ascend.simulated.build --out FOLDER` prints the folder, to be put on LD_LIBRARY_PATH. Objects
are kept beside them under the hash of what they are made from, so that a change compiles little.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from core.vendors.ascend.simulated import operators
from tests.compiled import MACHINE

SOURCES = Path(__file__).parent
ROOT = SOURCES.parents[3]
COLLECTIVES = ROOT / "comm" / "simulated"
FOLDER = ROOT / "dist" / "simulated_ascend"

COMPILER = [
    *shlex.split(os.environ.get("CXX", "g++")),
    *("-std=c++17", "-O1", "-fPIC", "-fvisibility=hidden", "-pthread"),
    *("-Wall", "-Wextra", "-Werror"),
]
OPAPI = ("opapi", "program", "helpers", "attention")
CCL = ("ccl", "calls", "group", "sockets")
NEED_TORCH = {"program", "helpers", "attention"}


def torch_folder() -> Path:
    """Where torch is, which need not be imported."""
    spec = importlib.util.find_spec("torch")
    assert spec and spec.origin, "the simulated libopapi computes by torch, which is not installed"
    return Path(spec.origin).parent


def _parameter(parameter: operators.Parameter) -> str:
    kind, _ = operators.TYPES[parameter.ctype]
    names = {**operators.FLAGS, "reads": "kReads", "writes": "kWrites"}
    flags = " | ".join(sorted(names[flag] for flag in parameter.flags)) or "0"
    dtypes = sum(1 << operators.DTYPES[dtype] for dtype in parameter.dtypes)
    ranks = f"{parameter.ranks[0]}, {parameter.ranks[1]}"
    return f'{{"{parameter.name}", Type::{kind}, {flags}, {ranks}, {dtypes:#x}u}}'


def _functions(operator: operators.Operator, index: int) -> str:
    # A bool is taken as a byte, which has room for what is neither true nor false.
    arguments = ", ".join(
        f"{'uint8_t' if each.ctype == 'bool' else each.ctype.replace('char*', 'const char*')} {each.name}_"
        for each in operator.parameters
    )
    values = ", ".join(
        f"{operators.TYPES[each.ctype][1]}_of({each.name}_)" for each in operator.parameters
    )
    name = f"aclnn{operator.name}"
    return f"""
EXPORTED int {name}GetWorkspaceSize({arguments}, uint64_t* size, void** executor) {{
  const Value values[] = {{{values}}};
  return phase_one(functions[{index}], values, size, executor);
}}
EXPORTED int {name}(void* workspace, uint64_t size, void* executor, void* stream) {{
  return phase_two(functions[{index}], workspace, size, executor, stream);
}}
"""


def wrappers(group: str) -> str:
    """The source of a group's functions, each with its prototype's own types."""
    mine = [each for each in operators.load().values() if each.group == group]
    lines = [
        '#include "opapi.h"',
        '#define EXPORTED extern "C" __attribute__((visibility("default")))',
        *(
            f"struct {name};"
            for name in (
                *("aclTensor", "aclScalar", "aclIntArray", "aclFloatArray", "aclBoolArray"),
                *("aclTensorList", "aclScalarList"),
            )
        ),
        "using aclDataType = int;",
        "using namespace simulated_ascend;",
        "namespace {",
        "Value handle_of(const void* value) { Value out; out.handle = value; return out; }",
        "template <class T> Value integer_of(T value)"
        " { Value out; out.integer = static_cast<int64_t>(value); return out; }",
        "[[maybe_unused]] Value real_of(double value) { Value out; out.real = value; return out; }",
    ]
    for each in mine:
        described = ", ".join(map(_parameter, each.parameters))
        lines.append(f"const Parameter parameters_of_{each.name}[] = {{{described}}};")
    lines.append("Function functions[] = {")
    for each in mine:
        program = each.program.replace('"', '\\"')
        repeat = "true" if each.can_repeat else "false"
        lines.append(
            f'{{"aclnn{each.name}", parameters_of_{each.name}, {len(each.parameters)}, "{program}", {repeat}}},'
        )
    lines.append("};")
    lines.append(
        "__attribute__((constructor)) void add() { add_functions(functions, std::size(functions)); }"
    )
    lines.append("} // namespace")
    lines += [_functions(each, index) for index, each in enumerate(mine)]
    return "\n".join(["#include <iterator>", *lines])


def newer() -> str:
    """The source of the names of what came after CANN 8.1."""
    names = ", ".join(f'"{name}"' for name in operators.newer())
    return f'#include "opapi.h"\nconst char* const simulated_ascend::newer_functions[] = {{{names}, nullptr}};\n'


def _digest(*parts: str | bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(part.encode() if isinstance(part, str) else part)
        made.update(b"\0")
    return made.hexdigest()[:20]


class Builder:
    """What one folder is built from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.objects = folder / "objects"
        self.objects.mkdir(parents=True, exist_ok=True)
        self.torch = torch_folder()
        self.headers = b"".join(path.read_bytes() for path in sorted(SOURCES.glob("*.h")))
        self.used: set[Path] = set()

    def compile(self, name: str, source: str, more: list[str]) -> Path:
        """An object, compiled unless it is there."""
        flags = [*COMPILER, f"-I{SOURCES}", *more]
        target = self.objects / f"{name}-{_digest(source, self.headers, *flags)}.o"
        self.used.add(target)
        if not target.exists():
            made = target.with_suffix(f".{os.getpid()}.tmp")
            command = [*flags, "-x", "c++", "-c", "-o", str(made), "-"]
            subprocess.run(command, input=source, text=True, check=True)
            made.rename(target)
        return target

    def link(self, name: str, objects: list[Path], more: list[str]) -> Path:
        """A library, linked unless it is there."""
        command = [*COMPILER, "-shared", f"-Wl,-soname,{name}", *map(str, objects), *more]
        target = self.folder / name
        stamp = self.objects / f"{name}.{_digest(*command)}"
        self.used.add(stamp)
        if not (stamp.exists() and target.exists()):
            made = self.folder / f".{name}.{os.getpid()}"
            subprocess.run([*command, "-o", str(made)], check=True)
            made.rename(target)
            stamp.touch()
        return target

    def object_of(self, name: str) -> Path:
        """The object of one of the sources here, or of the simulated collectives."""
        folder = SOURCES if (SOURCES / f"{name}.cc").exists() else COLLECTIVES
        source = (folder / f"{name}.cc").read_text()
        more = ["-isystem", str(self.torch / "include")] if name in NEED_TORCH else []
        if name in (*CCL, "hccl", "flagcx"):
            more = [f"-I{COLLECTIVES}"]
            source += "".join(
                f"// {path.name} {_digest(path.read_bytes())}\n"
                for path in sorted(COLLECTIVES.glob("*.h"))
            )
        if name == "libascendcl":
            source += "".join(
                f"// {path.name} {_digest(path.read_bytes())}\n"
                for path in sorted([*SOURCES.glob("*.cc"), *MACHINE.glob("*.[ch]*")])
            )
        return self.compile(name, source, more)

    def build(self) -> None:
        """All libraries."""
        with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            # The slowest first.
            named = {
                name: pool.submit(self.object_of, name)
                for name in (
                    *("helpers", "program", "attention", "libascendcl", "nnopbase", "opapi"),
                    *(*CCL, "hccl", "flagcx"),
                )
            }
            groups = [
                pool.submit(self.compile, f"wrappers_{group}", wrappers(group), [])
                for group in operators.GROUPS
            ]
            groups.append(pool.submit(self.compile, "newer", newer(), []))
        here = [
            f"-L{self.folder}",
            "-Wl,--enable-new-dtags",
            "-Wl,-rpath,$ORIGIN",
            "-Wl,--no-undefined",
        ]
        self.link("libascendcl.so", [named["libascendcl"].result()], [])
        self.link("libnnopbase.so", [named["nnopbase"].result()], [*here, "-lascendcl"])
        torch = self.torch / "lib"
        objects = [*(named[name].result() for name in OPAPI), *(each.result() for each in groups)]
        more = [
            f"-L{torch}",
            f"-Wl,-rpath,{torch}",
            "-Wl,--unresolved-symbols=ignore-in-shared-libs",
        ]
        libraries = ["-lnnopbase", "-lascendcl", "-ltorch_cpu", "-lc10", "-ldl"]
        self.link("libopapi.so", objects, [*here, *more, *libraries])
        shared = [named[name].result() for name in CCL]
        for name in ("hccl", "flagcx"):
            parts = [named[name].result(), *shared]
            self.link(f"lib{name}.so", parts, [*here, "-lascendcl", "-lrt"])
        for old in set(self.objects.iterdir()) - self.used:
            if old.suffix != ".tmp":
                old.unlink(missing_ok=True)


def build(folder: Path = FOLDER) -> Path:
    """The folder with the libraries, built as far as anything has changed."""
    Builder(folder).build()
    return folder


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=FOLDER, help="the folder to build in")
    print(build(parser.parse_args().out.absolute()))


if __name__ == "__main__":
    main()
